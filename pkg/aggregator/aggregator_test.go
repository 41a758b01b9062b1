package aggregator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestMain looks for goroutines that outlive their servers.
func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// run runs a server until the test ends, or until the returned function is called.
func run(t *testing.T, d controlplane.Storage, parts ...controlplane.Part) (config *rest.Config, stop func()) {
	t.Helper()
	s, err := controlplane.New(t.Name()).Storage(d).
		With(crd.Definitions{}, core.Namespaces{}, core.ConfigMaps{}, coordination.Leases{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done, stopped := make(chan error, 1), false
	go func() { done <- s.Run(ctx) }()
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	}
	return s.ClientConfig(), stop
}

func services(t *testing.T, config *rest.Config) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// get is the answer to a GET of a path.
func get(t *testing.T, config *rest.Config, path, accept string) (body string, status int) {
	t.Helper()
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := c.RESTClient().Get().AbsPath(path).SetHeader("Accept", accept).MaxRetries(0).Do(t.Context()).StatusCode(&status).Raw()
	return string(raw), status
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Errorf("%s: %v", what, err)
}

// available is the Available condition, "Status Reason".
func available(s *apiregistrationv1.APIService) string {
	for _, c := range s.Status.Conditions {
		if c.Type == apiregistrationv1.Available {
			return fmt.Sprintf("%s %s", c.Status, c.Reason)
		}
	}
	return ""
}

// all are the Available conditions by name.
func all(t *testing.T, config *rest.Config) map[string]string {
	t.Helper()
	list, err := services(t, config).ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, s := range list.Items {
		found[s.Name] = available(&s)
	}
	return found
}

func differ(want, got any) error {
	if diff := cmp.Diff(want, got); diff != "" {
		return errors.New("-want +got:\n" + diff)
	}
	return nil
}

// define creates a CRD of a group with the given versions.
func define(t *testing.T, config *rest.Config, group string, versions ...string) {
	t.Helper()
	def := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
		},
	}
	for i, v := range versions {
		def.Spec.Versions = append(def.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: v, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		})
	}
	if _, err := definitions(t, config).Create(t.Context(), def, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

type definitionClient interface {
	Create(context.Context, *apiextensionsv1.CustomResourceDefinition, metav1.CreateOptions) (*apiextensionsv1.CustomResourceDefinition, error)
	Delete(context.Context, string, metav1.DeleteOptions) error
}

func definitions(t *testing.T, config *rest.Config) definitionClient {
	t.Helper()
	c, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.ApiextensionsV1().CustomResourceDefinitions()
}

// fixed are the APIServices of the server without CRDs.
func fixed() map[string]string {
	return map[string]string{"v1.": "True Local", "v1.apiextensions.k8s.io": "True Local", "v1.coordination.k8s.io": "True Local"}
}

// TestLocal: everything that is served has an APIService that is available, and
// those of CRDs come and go with them.
func TestLocal(t *testing.T) {
	t.Parallel()
	config, _ := run(t, memory.Store{}, aggregator.APIServices{})
	eventually(t, "at start", func() error { return differ(fixed(), all(t, config)) })
	define(t, config, "example.com", "v1", "v1beta1")
	define(t, config, "example.org", "v2")
	want := fixed()
	want["v1.example.com"], want["v1beta1.example.com"], want["v2.example.org"] = "True Local", "True Local", "True Local"
	eventually(t, "with CRDs", func() error { return differ(want, all(t, config)) })
	if err := services(t, config).ApiregistrationV1().APIServices().Delete(t.Context(), "v2.example.org", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "after somebody deleted one", func() error { return differ(want, all(t, config)) })
	if err := definitions(t, config).Delete(t.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	delete(want, "v1.example.com")
	delete(want, "v1beta1.example.com")
	eventually(t, "without one CRD", func() error { return differ(want, all(t, config)) })
}

// TestDiscovery: both forms of discovery list everything, by priority.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	config, _ := run(t, memory.Store{}, aggregator.APIServices{})
	define(t, config, "example.org", "v1")
	define(t, config, "example.com", "v1beta1", "v2", "v1", "v10", "v2alpha1")
	want := []string{
		"apiregistration.k8s.io [v1]", "coordination.k8s.io [v1]", "apiextensions.k8s.io [v1]",
		"example.com [v10 v2 v1 v1beta1 v2alpha1]", "example.org [v1]",
	}
	eventually(t, "unaggregated", func() error {
		body, status := get(t, config, "/apis", "application/json")
		list := metav1.APIGroupList{}
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			return fmt.Errorf("%d %s: %w", status, body, err)
		}
		var got []string
		for _, g := range list.Groups {
			var versions []string
			for _, v := range g.Versions {
				versions = append(versions, v.Version)
			}
			got = append(got, fmt.Sprintf("%s %v", g.Name, versions))
			if g.PreferredVersion.Version != versions[0] {
				return fmt.Errorf("%s prefers %s", g.Name, g.PreferredVersion.Version)
			}
		}
		return differ(want, got)
	})
	aggregated := func(path string) (got []string, err error) {
		body, status := get(t, config, path, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		list := apidiscoveryv2.APIGroupDiscoveryList{}
		if err := json.Unmarshal([]byte(body), &list); err != nil {
			return nil, fmt.Errorf("%d %s: %w", status, body, err)
		}
		for _, g := range list.Items {
			var versions []string
			for _, v := range g.Versions {
				versions = append(versions, v.Version)
				if len(v.Resources) == 0 || v.Freshness != apidiscoveryv2.DiscoveryFreshnessCurrent {
					return nil, fmt.Errorf("%s/%s is %s with %d resources", g.Name, v.Version, v.Freshness, len(v.Resources))
				}
			}
			got = append(got, fmt.Sprintf("%s %v", g.Name, versions))
		}
		return got, nil
	}
	eventually(t, "aggregated", func() error {
		got, err := aggregated("/apis")
		return errors.Join(err, differ(want, got))
	})
	eventually(t, "aggregated, core", func() error {
		got, err := aggregated("/api")
		return errors.Join(err, differ([]string{" [v1]"}, got))
	})
}

// TestCompleteWhenReady: who asks right after the start finds every group.
func TestCompleteWhenReady(t *testing.T) {
	t.Parallel()
	config, _ := run(t, memory.Store{}, aggregator.APIServices{})
	body, _ := get(t, config, "/apis", "application/json")
	for _, group := range []string{"apiregistration.k8s.io", "coordination.k8s.io", "apiextensions.k8s.io"} {
		if !strings.Contains(body, `"name":"`+group+`"`) {
			t.Errorf("right after Ready /apis does not list %s: %s", group, body)
		}
	}
}

// kept is a storage in memory that outlives its servers, as a file does.
type kept struct{ controlplane.Backend }

func (k kept) Open() controlplane.Backend { return keptOpen(k) }
func (kept) Traits() controlplane.Traits  { return memory.Store{}.Traits() }

type keptOpen struct{ controlplane.Backend }

func (keptOpen) Start(context.Context) error { return nil }
func (keptOpen) Stop(context.Context) error  { return nil }

// TestRestart: APIServices of CRDs stay as they are over a restart.
func TestRestart(t *testing.T) {
	t.Parallel()
	storage := memory.Store{}.Open()
	if err := storage.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := storage.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	config, stop := run(t, kept{storage}, aggregator.APIServices{})
	want := fixed()
	for i := range 10 {
		group := fmt.Sprintf("g%d.example.com", i)
		define(t, config, group, "v1")
		want["v1."+group] = "True Local"
	}
	uids := func() map[string]string {
		list, err := services(t, config).ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, s := range list.Items {
			found[s.Name] = string(s.UID)
		}
		return found
	}
	eventually(t, "before", func() error { return differ(want, all(t, config)) })
	before := uids()
	stop()
	config, _ = run(t, kept{storage}, aggregator.APIServices{})
	eventually(t, "after", func() error { return differ(want, all(t, config)) })
	if diff := cmp.Diff(before, uids()); diff != "" {
		t.Errorf("a restart deleted APIServices and made them anew: -before +after:\n%s", diff)
	}
}

// TestKept: an APIService that nobody checks is kept and not available, and
// disturbs nothing.
func TestKept(t *testing.T) {
	t.Parallel()
	config, _ := run(t, memory.Store{}, aggregator.APIServices{})
	if _, err := services(t, config).ApiregistrationV1().APIServices().Create(t.Context(), remoteService(nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a request to its group", func() error {
		if body, status := get(t, config, "/apis/far.example.com/v1/things", "application/json"); status != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s, want 503", status, body)
		}
		return nil
	})
	if got := all(t, config)["v1.far.example.com"]; strings.HasPrefix(got, "True") {
		t.Errorf("Available is %s", got)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.CoordinationV1().Leases("default").Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Error(err)
	}
	body, _ := get(t, config, "/apis", "application/json")
	if !strings.Contains(body, `"coordination.k8s.io/v1"`) {
		t.Errorf("/apis: %s", body)
	}
}
