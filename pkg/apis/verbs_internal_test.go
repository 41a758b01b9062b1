package apis

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// TestVerbSets looks at the storage of every combination as the installer does.
func TestVerbSets(t *testing.T) {
	t.Parallel()
	for _, set := range verbSets() {
		s := set.restrict(&storage{Store: &registry.Store{}})
		got := map[string]bool{}
		_, got["create"] = s.(rest.Creater)
		_, got["get"] = s.(rest.Getter)
		_, got["list"] = s.(rest.Lister)
		_, got["watch"] = s.(rest.Watcher)
		_, got["update"] = s.(rest.Updater)
		_, got["patch"] = s.(rest.Patcher)
		_, got["delete"] = s.(rest.GracefulDeleter)
		_, got["deletecollection"] = s.(rest.CollectionDeleter)
		want := strings.Fields(set.verbs)
		for verb, served := range got {
			if served != slices.Contains(want, verb) {
				t.Errorf("storage for %q: %s served: %t", set.verbs, verb, served)
			}
		}
		if _, ok := s.(noVerbs); !ok {
			t.Errorf("storage for %q lacks what every resource has", set.verbs)
		}
	}
}
