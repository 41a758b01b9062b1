package aggregator_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// begin runs a server until the benchmark ends.
func begin(b *testing.B, parts ...controlplane.Part) *controlplane.Server {
	b.Helper()
	s, err := controlplane.New("bench").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		b.Fatal(err)
	}
	started(b, s)
	return s
}

// BenchmarkGet gets an apple that the server has itself, and one of another server.
func BenchmarkGet(b *testing.B) {
	apples := apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples"))
	behind := begin(b, apples)
	over := httptest.NewUnstartedServer(asAdministrator(behind))
	over.EnableHTTP2 = true
	over.StartTLS()
	b.Cleanup(over.Close)
	file := b.TempDir() + "/ca.crt"
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: over.Certificate().Raw}), 0o600); err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		parts []controlplane.Part
	}{
		{"local", []controlplane.Part{apples, aggregator.APIServices{}}},
		{"handler", []controlplane.Part{aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", Handler: behind.Handler()}}}}},
		{"url", []controlplane.Part{aggregator.APIServices{Servers: []aggregator.Server{{Name: "shop/fruit", URL: over.URL, CAFile: file}}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := begin(b, append(c.parts, core.Namespaces{KeepDeleted: true}, authn.Anonymous{Paths: []string{"/livez"}})...)
			client, err := dynamic.NewForConfig(s.ClientConfig())
			if err != nil {
				b.Fatal(err)
			}
			resource := client.Resource(fruit.GroupVersion().WithResource("apples")).Namespace("default")
			for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if _, err = resource.List(b.Context(), metav1.ListOptions{}); err == nil {
					break
				}
			}
			_, _ = resource.Create(b.Context(), apple("a"), metav1.CreateOptions{}) // it may be there
			if _, err = resource.Get(b.Context(), "a", metav1.GetOptions{}); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := resource.Get(b.Context(), "a", metav1.GetOptions{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkStart starts and stops a server with APIServices, of which there are none.
func BenchmarkStart(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s, err := controlplane.New("bench").Storage(memory.Store{}).
			With(core.Namespaces{}, core.ConfigMaps{}, aggregator.APIServices{}).Build()
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		<-s.Ready()
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
}

// asAdministrator is a server's handler for whoever calls it.
func asAdministrator(s *controlplane.Server) http.Handler {
	token := s.ClientConfig().BearerToken
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		s.Handler().ServeHTTP(w, r)
	})
}

// BenchmarkFirstAnswer creates an APIService, and asks until its server answers.
func BenchmarkFirstAnswer(b *testing.B) {
	far := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind": "Answer"}`))
	}))
	b.Cleanup(far.Close)
	s := begin(b, core.Namespaces{}, core.ConfigMaps{}, aggregator.APIServices{})
	client, err := clientset.NewForConfig(s.ClientConfig())
	if err != nil {
		b.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: far.Certificate().Raw})
	for b.Loop() {
		service := remoteService(ca)
		service.Annotations = map[string]string{aggregator.URLAnnotation: far.URL}
		if _, err := client.ApiregistrationV1().APIServices().Create(b.Context(), service, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		for {
			_, err := client.RESTClient().Get().AbsPath("/apis/far.example.com/v1/things").Do(b.Context()).Raw()
			if err == nil {
				break
			}
		}
		b.StopTimer()
		if err := client.ApiregistrationV1().APIServices().Delete(b.Context(), service.Name, metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		for { // until nobody answers for it
			if _, err := client.RESTClient().Get().AbsPath("/apis/far.example.com/v1/things").Do(b.Context()).Raw(); err != nil {
				break
			}
		}
		b.StartTimer()
	}
}
