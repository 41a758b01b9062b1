package clients

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/pager"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// TestPages reads a list in pages: all are of one moment, whatever is written
// in between.
func TestPages(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		client := clientset(t, s.inProcess)
		createMany(t, client, "page", 0, 105)
		all := client.CoreV1().ConfigMaps("default")
		var names []string
		var version, next string
		for page := 0; page == 0 || next != ""; page++ {
			list, err := all.List(ctx, metav1.ListOptions{Limit: 10, Continue: next, LabelSelector: "test=page"})
			must(t, err)
			if page == 0 {
				version = list.ResourceVersion
				must(t, all.Delete(ctx, "page-0100", metav1.DeleteOptions{}))
				createMany(t, client, "page", 200, 201)
			}
			if list.ResourceVersion != version {
				t.Errorf("page %d is of version %s, the first of %s", page, list.ResourceVersion, version)
			}
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			next = list.Continue
		}
		var want []string
		for i := range 105 {
			want = append(want, fmt.Sprintf("page-%04d", i))
		}
		if !slices.Equal(names, want) {
			t.Errorf("pages have %d objects, want the 105 that were there at first: %v", len(names), names)
		}

		// The pager of client-go sees what is there now.
		n := 0
		err := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) })).
			EachListItem(ctx, metav1.ListOptions{LabelSelector: "test=page", Limit: 20}, func(runtime.Object) error { n++; return nil })
		must(t, err)
		if n != 105 {
			t.Errorf("the pager found %d objects, want 105", n)
		}
		if _, err := all.List(ctx, metav1.ListOptions{Limit: 1, Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
			t.Errorf("a wrong continue token: %v, want a bad request", err)
		}
	})
}

// TestMetadataClient reads and patches the metadata of objects of any kind.
func TestMetadataClient(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		client, err := metadata.NewForConfig(s.overTLS)
		must(t, err)
		objects, err := dynamic.NewForConfig(s.overTLS)
		must(t, err)
		for name, resource := range map[string]schema.GroupVersionResource{"built in": configMaps, "custom": widgets} {
			t.Run(name, func(t *testing.T) {
				_, err := objects.Resource(resource).Namespace("default").Create(ctx, object(resource, "lever"), metav1.CreateOptions{})
				must(t, err)
				meta := client.Resource(resource).Namespace("default")
				list, err := meta.List(ctx, metav1.ListOptions{})
				must(t, err)
				if len(list.Items) != 1 || list.Items[0].Name != "lever" || list.Items[0].UID == "" {
					t.Fatalf("list: %+v", list)
				}
				w, err := meta.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
				must(t, err)
				defer w.Stop()
				_, err = meta.Patch(ctx, "lever", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
				must(t, err)
				event := receive(t, "watch", w.ResultChan())
				changed, ok := event.Object.(*metav1.PartialObjectMetadata)
				if event.Type != watch.Modified || !ok || changed.Labels["a"] != "b" {
					t.Errorf("event: %s %+v", event.Type, event.Object)
				}
				must(t, meta.Delete(ctx, "lever", metav1.DeleteOptions{}))
				if event := receive(t, "watch", w.ResultChan()); event.Type != watch.Deleted {
					t.Errorf("event: %s, want DELETED", event.Type)
				}
			})
		}
	})
}

// TestDynamicClient goes through the life of objects of each sort of group.
func TestDynamicClient(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		client, err := dynamic.NewForConfig(s.inProcess)
		must(t, err)
		for name, resource := range map[string]schema.GroupVersionResource{"built in": configMaps, "custom": widgets, "typed": apples} {
			t.Run(name, func(t *testing.T) {
				ctx := t.Context()
				objects := client.Resource(resource).Namespace("default")
				created, err := objects.Create(ctx, object(resource, "lever"), metav1.CreateOptions{})
				must(t, err)
				if _, err := objects.Create(ctx, object(resource, "lever"), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
					t.Errorf("create again: %v", err)
				}
				created.SetAnnotations(map[string]string{"note": "first"})
				updated, err := objects.Update(ctx, created, metav1.UpdateOptions{})
				must(t, err)
				created.SetAnnotations(map[string]string{"note": "second"})
				if _, err := objects.Update(ctx, created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
					t.Errorf("update of an old version: %v, want a conflict", err)
				}
				applied := object(resource, "lever")
				applied.SetLabels(map[string]string{"applied": "yes"})
				got, err := objects.Apply(ctx, "lever", applied, metav1.ApplyOptions{FieldManager: "test", Force: true})
				must(t, err)
				if got.GetLabels()["applied"] != "yes" || got.GetAnnotations()["note"] != "first" || got.GetUID() != updated.GetUID() {
					t.Errorf("applied: %v", got.Object["metadata"])
				}
				must(t, objects.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "applied=yes"}))
				if _, err := objects.Get(ctx, "lever", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					t.Errorf("get after delete: %v", err)
				}
			})
		}
	})
}

// TestWatch sees each change once and in order.
func TestWatch(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		ctx := t.Context()
		all := clientset(t, s.overTLS).CoreV1().ConfigMaps("default")
		list, err := all.List(ctx, metav1.ListOptions{})
		must(t, err)
		w, err := all.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		must(t, err)
		defer w.Stop()
		m, err := all.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "counted"}}, metav1.CreateOptions{})
		must(t, err)
		want := []string{"ADDED " + m.ResourceVersion}
		for i := range 20 {
			m.Data = map[string]string{"n": fmt.Sprint(i)}
			m, err = all.Update(ctx, m, metav1.UpdateOptions{})
			must(t, err)
			want = append(want, "MODIFIED "+m.ResourceVersion)
		}
		var got []string
		for range want {
			e := receive(t, "watch", w.ResultChan())
			got = append(got, fmt.Sprint(e.Type, " ", e.Object.(*corev1.ConfigMap).ResourceVersion))
		}
		if !slices.Equal(got, want) {
			t.Errorf("events: %v, want %v", got, want)
		}
	})
}

var apples = schema.GroupVersionResource{Group: "fruit.example.com", Version: "v1", Resource: "apples"}

// object is a valid object of a resource.
func object(resource schema.GroupVersionResource, name string) *unstructured.Unstructured {
	o := map[schema.GroupVersionResource]map[string]any{
		configMaps: {"kind": "ConfigMap", "data": map[string]any{"sky": "blue"}},
		widgets:    {"kind": "Widget", "spec": map[string]any{"size": int64(42)}},
		apples:     {"kind": "Apple", "spec": map[string]any{"variety": "Gala"}},
	}[resource]
	o["apiVersion"] = resource.GroupVersion().String()
	u := &unstructured.Unstructured{Object: o}
	u.SetName(name)
	u.SetNamespace("default")
	return u
}

// statusOf is the HTTP status of an error.
func statusOf(err error) int {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return int(status.Status().Code)
	}
	if err == nil {
		return http.StatusOK
	}
	return 0
}
