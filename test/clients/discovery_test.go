package clients

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"
)

// TestDiscovery finds the same resources in two requests, as today's clients
// do, and group by group, as older ones.
func TestDiscovery(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		recorded := &recorder{}
		aggregated, err := discovery.NewDiscoveryClientForConfig(recorded.wrap(s.overTLS))
		must(t, err)
		_, now, err := aggregated.ServerGroupsAndResources()
		must(t, err)
		if n := len(recorded.contentTypes()); n != 2 {
			t.Errorf("aggregated discovery took %d requests, want 2", n)
		}
		for _, got := range recorded.contentTypes() {
			if want := discovery.AcceptV2; got != want {
				t.Errorf("aggregated discovery is of type %q, want %q", got, want)
			}
		}

		legacy := discovery.NewDiscoveryClient(aggregated.RESTClient())
		legacy.UseLegacyDiscovery = true
		_, then, err := legacy.ServerGroupsAndResources()
		must(t, err)
		if diff := cmp.Diff(names(now), names(then)); diff != "" {
			t.Errorf("aggregated and older discovery differ (-aggregated +older):\n%s", diff)
		}
		want := []string{
			"apiextensions.k8s.io/v1 customresourcedefinitions",
			"apiextensions.k8s.io/v1 customresourcedefinitions/status",
			"apiregistration.k8s.io/v1 apiservices",
			"apiregistration.k8s.io/v1 apiservices/status",
			"coordination.k8s.io/v1 leases",
			"example.com/v1 widgets",
			"example.com/v1 widgets/status",
			"fruit.example.com/v1 apples",
			"v1 configmaps",
			"v1 namespaces",
			"v1 namespaces/finalize",
			"v1 namespaces/status",
			"v1 secrets",
		}
		if diff := cmp.Diff(want, names(now)); diff != "" {
			t.Errorf("discovered (-want +got):\n%s", diff)
		}

		preferred, err := aggregated.ServerPreferredNamespacedResources()
		must(t, err)
		if got := names(preferred); !slices.Contains(got, "example.com/v1 widgets") || slices.Contains(got, "v1 namespaces") {
			t.Errorf("preferred namespaced resources: %v", got)
		}
	})
}

// TestRESTMapper finds kinds for resources, short names and resources for kinds.
func TestRESTMapper(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		d, err := discovery.NewDiscoveryClientForConfig(s.inProcess)
		must(t, err)
		cached := memory.NewMemCacheClient(d)
		deferred := restmapper.NewDeferredDiscoveryRESTMapper(cached)
		mapping, err := deferred.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"})
		must(t, err)
		if mapping.Resource != widgets || mapping.Scope.Name() != "namespace" {
			t.Errorf("widgets: %+v", mapping)
		}
		mapping, err = deferred.RESTMapping(schema.GroupKind{Kind: "Namespace"})
		must(t, err)
		if mapping.Scope.Name() != "root" {
			t.Errorf("namespaces: %+v", mapping)
		}
		kind, err := restmapper.NewShortcutExpander(deferred, cached, nil).KindFor(schema.GroupVersionResource{Resource: "wd"})
		must(t, err)
		if kind.Kind != "Widget" {
			t.Errorf("wd is %v", kind)
		}
	})
}

// names lists "GROUP/VERSION RESOURCE", sorted.
func names(lists []*metav1.APIResourceList) []string {
	var all []string
	for _, list := range lists {
		for i := range list.APIResources {
			all = append(all, list.GroupVersion+" "+list.APIResources[i].Name)
		}
	}
	slices.Sort(all)
	return all
}
