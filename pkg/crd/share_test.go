package crd

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

func TestShareSpec(t *testing.T) {
	t.Parallel()
	made := func(name, uid string, generation int64) *apiextensionsv1.CustomResourceDefinition {
		return &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid), Generation: generation, ResourceVersion: name + uid},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1"}}},
		}
	}
	cases := map[string]struct {
		reason string
		told   *apiextensionsv1.CustomResourceDefinition
		shared bool
	}{
		"status":     {"the generation is that of the spec", made("a", "1", 1), true},
		"spec":       {"another generation is another spec", made("a", "1", 2), false},
		"made again": {"another CRD of the name begins with generation 1, too", made("a", "2", 1), false},
		"new":        {"there is nothing to share", made("b", "3", 1), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := cache.NewStore(cache.MetaNamespaceKeyFunc)
			known := made("a", "1", 1)
			if err := store.Add(known); err != nil {
				t.Fatal(err)
			}
			version := tc.told.ResourceVersion
			got, err := shareSpec(store)(tc.told)
			if err != nil || got != tc.told || tc.told.ResourceVersion != version {
				t.Fatalf("%s: got %v, %v", tc.reason, got, err)
			}
			if shared := &tc.told.Spec.Versions[0] == &known.Spec.Versions[0]; shared != tc.shared {
				t.Errorf("%s: shared %v, want %v", tc.reason, shared, tc.shared)
			}
		})
	}
	gone := cache.DeletedFinalStateUnknown{Key: "a"}
	if got, err := shareSpec(cache.NewStore(cache.MetaNamespaceKeyFunc))(gone); err != nil || got != gone {
		t.Errorf("a name: got %v, %v", got, err)
	}
}
