package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// house are the rules of the front: every apple is marked and has no secrets, none is rotten or turns from
// ripe to green, and those that are kept are not deleted.
func house() controlplane.Parts {
	return controlplane.Parts{
		admit.Mutate("mark", func(_ context.Context, a admit.Attributes) error {
			if o, ok := a.GetObject().(*unstructured.Unstructured); ok && a.GetSubresource() == "" {
				unstructured.RemoveNestedField(o.Object, "metadata", "annotations", "secret")
				labels := o.GetLabels()
				if labels == nil {
					labels = map[string]string{}
				}
				labels["seen-by"] = "front"
				o.SetLabels(labels)
			}
			return nil
		}),
		admit.ValidateObject("sort", func(_ context.Context, o, old *unstructured.Unstructured, _ admit.Attributes) error {
			switch {
			case o.GetLabels()["rotten"] != "":
				return errors.New("no rotten apples")
			case old != nil && old.GetLabels()["color"] == "red" && o.GetLabels()["color"] == "green":
				return errors.New("ripe apples stay ripe")
			case o.GetKind() == "Apple" && o.GetLabels()["seen-by"] == "":
				return errors.New("nobody saw it")
			}
			return nil
		}),
		admit.Validate("keep", func(_ context.Context, a admit.Attributes) error {
			if a.GetOperation() != admit.Delete || a.GetResource().Resource != "apples" {
				return nil
			}
			if a.GetName() == "" {
				return errors.New("not all at once")
			}
			if old, ok := a.GetOldObject().(*unstructured.Unstructured); !ok || old.GetLabels()["keep"] != "" {
				return errors.New("it is kept")
			}
			return nil
		}),
	}
}

// TestAdmission: what is written at a server whose policies are this one's is what admission
// made of it, whatever verb wrote it.
func TestAdmission(t *testing.T) {
	t.Parallel()
	t.Run("handler", func(t *testing.T) {
		t.Parallel()
		inner := orchard(t)
		underPolicies(t, aggregator.Server{Name: "shop/fruit", Handler: inner.Handler()}, appleClient(t, inner.ClientConfig()))
	})
	t.Run("URL", func(t *testing.T) {
		t.Parallel()
		inner := orchard(t)
		s, ca := far(t, handedTo(t, inner))
		file := t.TempDir() + "/ca.crt"
		write(t, file, string(ca))
		underPolicies(t, aggregator.Server{Name: "shop/fruit", URL: s.URL, CAFile: file}, appleClient(t, inner.ClientConfig()))
	})
}

func underPolicies(t *testing.T, s aggregator.Server, stored dynamic.ResourceInterface) {
	t.Helper()
	s.Admission = true
	config, _ := run(t, memory.Store{}, aggregator.APIServices{Servers: []aggregator.Server{s}}, house())
	apples := appleClient(t, config)
	eventually(t, "the server behind answers", func() error {
		_, err := apples.List(t.Context(), metav1.ListOptions{})
		return err
	})
	labelled := func(name, key, value string) *unstructured.Unstructured {
		a := apple(name)
		a.SetLabels(map[string]string{key: value})
		return a
	}
	ctx := t.Context()
	for _, c := range []struct {
		what   string
		do     func() error
		want   string // of the error; empty: none
		labels string // of apple a afterwards
	}{
		{"create", func() error {
			_, err := apples.Create(ctx, labelled("a", "color", "red"), metav1.CreateOptions{})
			return err
		}, "", "color:red seen-by:front"},
		{"create what is refused", func() error {
			_, err := apples.Create(ctx, labelled("b", "rotten", "yes"), metav1.CreateOptions{})
			return err
		}, "no rotten apples", ""},
		{"update, compared with what is there", func() error {
			a, err := apples.Get(ctx, "a", metav1.GetOptions{})
			if err != nil {
				return err
			}
			a.SetLabels(map[string]string{"color": "green"})
			_, err = apples.Update(ctx, a, metav1.UpdateOptions{})
			return err
		}, "ripe apples stay ripe", "color:red seen-by:front"},
		{"merge patch", func() error {
			_, err := apples.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"size":"big","seen-by":null}}}`), metav1.PatchOptions{})
			return err
		}, "", "color:red seen-by:front size:big"},
		{"JSON patch", func() error {
			_, err := apples.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/labels/size"}]`), metav1.PatchOptions{})
			return err
		}, "", "color:red seen-by:front"},
		{"patch to what is refused", func() error {
			_, err := apples.Patch(ctx, "a", types.MergePatchType, []byte(`{"metadata":{"labels":{"color":"green"}}}`), metav1.PatchOptions{})
			return err
		}, "ripe apples stay ripe", "color:red seen-by:front"},
		{"patch that the server refuses", func() error {
			_, err := apples.Patch(ctx, "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/metadata/name","value":"b"}]`), metav1.PatchOptions{})
			return err
		}, "the server rejected our request", "color:red seen-by:front"},
		{"apply", func() error {
			_, err := apples.Apply(ctx, "a", labelled("a", "size", "small"), metav1.ApplyOptions{FieldManager: "picker"})
			return err
		}, "", "color:red seen-by:front size:small"},
		{"apply without what was applied", func() error {
			_, err := apples.Apply(ctx, "a", labelled("a", "keep", "yes"), metav1.ApplyOptions{FieldManager: "picker"})
			return err
		}, "", "color:red keep:yes seen-by:front"},
		{"apply what admission removes", func() error {
			a := labelled("a", "keep", "yes")
			a.SetAnnotations(map[string]string{"secret": "1"})
			a, err := apples.Apply(ctx, "a", a, metav1.ApplyOptions{FieldManager: "picker"})
			if err == nil && len(a.GetAnnotations()) > 0 {
				err = fmt.Errorf("it has annotations %v", a.GetAnnotations())
			}
			return err
		}, "", "color:red keep:yes seen-by:front"},
		{"apply where others have what admission removes", func() error {
			secret, none := []byte(`{"metadata":{"annotations":{"secret":"1"}}}`), []byte(`{"metadata":{"annotations":null}}`)
			_, err1 := stored.Patch(ctx, "a", types.MergePatchType, secret, metav1.PatchOptions{FieldManager: "other"})
			_, err2 := apples.Apply(ctx, "a", labelled("a", "keep", "yes"), metav1.ApplyOptions{FieldManager: "picker"})
			_, err3 := stored.Patch(ctx, "a", types.MergePatchType, none, metav1.PatchOptions{FieldManager: "other"})
			return errors.Join(err1, err2, err3)
		}, "admission removes .metadata.annotations", "color:red keep:yes seen-by:front"},
		{"apply of a new one", func() error {
			_, err := apples.Apply(ctx, "new", labelled("new", "rotten", "yes"), metav1.ApplyOptions{FieldManager: "picker"})
			return err
		}, "no rotten apples", ""},
		{"delete what is kept", func() error { return apples.Delete(ctx, "a", metav1.DeleteOptions{}) }, "it is kept", "color:red keep:yes seen-by:front"},
		{"delete all", func() error { return apples.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}) }, "not all at once", ""},
		{"dry run", func() error {
			_, err := apples.Create(ctx, apple("dry"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}, "", ""},
	} {
		err := c.do()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
		if c.labels == "" {
			continue
		}
		a, err := stored.Get(ctx, "a", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(strings.TrimPrefix(fmt.Sprint(a.GetLabels()), "map["), "]"); got != c.labels {
			t.Errorf("%s: the server has labels %s, want %s", c.what, got, c.labels)
		}
	}
	for _, name := range []string{"b", "new", "dry"} {
		if _, err := stored.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("apple %s: %v, want NotFound", name, err)
		}
	}
	t.Run("at once", func(t *testing.T) { patchedAtOnce(t, apples, stored) })
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	rotten, err := labelled("hidden", "rotten", "yes").MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	err = kube.CoreV1().RESTClient().Post().AbsPath("/apis/"+fruit.GroupVersion().String()+"/namespaces/default/apples").
		SetHeader("Content-Type", "application/json").SetHeader("Connection", "Upgrade").SetHeader("Upgrade", "websocket").
		Body(rotten).Do(ctx).Error()
	if err == nil || !strings.Contains(err.Error(), "no rotten apples") {
		t.Errorf("what asks for an upgrade, and is a create: %v, want that it is refused", err)
	}
	for path, want := range map[string]int{
		"apples":        http.StatusUnsupportedMediaType, // nobody here can read it
		"apples/a/exec": http.StatusNotFound,             // a stream is the server's matter, which has none
	} {
		status := 0
		kube.CoreV1().RESTClient().Post().AbsPath("/apis/"+fruit.GroupVersion().String()+"/namespaces/default/"+path).
			SetHeader("Content-Type", "application/vnd.kubernetes.protobuf").Body([]byte("k8s\x00")).Do(ctx).StatusCode(&status)
		if status != want {
			t.Errorf("protobuf to %s: %d, want %d", path, status, want)
		}
	}
}

// patchedAtOnce: patches of one object by several clients are all made, as at a server itself.
func patchedAtOnce(t *testing.T, apples, stored dynamic.ResourceInterface) {
	var patching sync.WaitGroup
	const clients = 4
	for i := range clients {
		patching.Go(func() {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"client-%d":"was here"}}}`, i)
			if _, err := apples.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Errorf("client %d: %v", i, err)
			}
		})
	}
	patching.Wait()
	a, err := stored.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := len(a.GetAnnotations()); got != clients {
		t.Errorf("%d of %d patches were made", got, clients)
	}
}

// TestAddress: discovery says where a server is to those who may know.
func TestAddress(t *testing.T) {
	t.Parallel()
	s, ca := far(t, handedTo(t, orchard(t)))
	file := t.TempDir() + "/ca.crt"
	write(t, file, string(ca))
	config, _ := run(t, memory.Store{}, aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", URL: s.URL, CAFile: file}}},
		authz.Func("discovery", func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
			if a.IsResourceRequest() {
				return authz.NoOpinion, "", nil
			}
			return authz.Allow, "", nil
		}))
	eventually(t, "the group", func() error {
		if _, status := get(t, config, "/apis/"+fruit.GroupVersion().Group, "application/json"); status != http.StatusOK {
			return fmt.Errorf("status %d", status)
		}
		return nil
	})
	stranger := rest.CopyConfig(config)
	stranger.Impersonate = rest.ImpersonationConfig{UserName: "stranger"}
	for _, path := range []string{"/apis", "/apis/" + fruit.GroupVersion().Group} {
		for who, sees := range map[*rest.Config]bool{config: true, stranger: false} {
			document, status := get(t, who, path, "application/json")
			if has := strings.Contains(document, `"serverAddress":"`+s.URL+`"`); status != http.StatusOK || has != sees {
				t.Errorf("%s for %q has the address: %t, want %t: %d %.300s", path, who.Impersonate.UserName, has, sees, status, document)
			}
		}
	}
}
