package apis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestServe runs a group in a whole server, with definitions by reflection.
func TestServe(t *testing.T) {
	t.Parallel()
	c := client(t, apis.NewGroup(fruit.GroupVersion(), nil, nil, appleResource(apis.Status(),
		apis.Scale(func(a *fruit.Apple) (*int32, int32, string) { return a.Spec.Replicas, 0, "" },
			func(a *fruit.Apple, n int32) { a.Spec.Replicas = &n }))))
	v1, v1alpha1 := "/apis/fruit.example.com/v1/namespaces/default/apples", "/apis/fruit.example.com/v1alpha1/namespaces/default/apples"
	apply := func(path, body string) *rest.Request {
		return c.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", "test").Body([]byte(body))
	}
	cases := []struct {
		reason  string
		request *rest.Request
		code    int
		want    string
	}{
		{
			"server-side apply finds the reflected schema", apply(v1+"/gala",
				`{"apiVersion":"fruit.example.com/v1","kind":"Apple","metadata":{"name":"gala"},"spec":{"variety":"Gala","replicas":1,"grafts":[{"name":"a"}]}}`),
			201, `"grafts":[{"name":"a"}]`,
		},
		{"the other version serves it", c.Get().AbsPath(v1alpha1 + "/gala"), 200, `"sort":"Gala"`},
		{"apply to /scale", apply(v1+"/gala/scale",
			`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"gala"},"spec":{"replicas":2}}`).Param("force", "true"), 200, `"replicas":2`},
		{"without protobuf methods, those who prefer it get JSON", c.Get().AbsPath(v1).
			SetHeader("Accept", runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON), 200, `"kind":"AppleList"`},
		{"and nobody can send it", c.Post().AbsPath(v1).SetHeader("Content-Type", runtime.ContentTypeProtobuf).Body([]byte("k8s\x00")), 415, ""},
		{"discovery", c.Get().AbsPath("/apis/fruit.example.com"), 200, `"preferredVersion":{"groupVersion":"fruit.example.com/v1"`},
		{"OpenAPI", c.Get().AbsPath("/openapi/v3/apis/fruit.example.com/v1"), 200, `"variety":{`},
	}
	for _, s := range cases {
		var code int
		body, err := s.request.Do(t.Context()).StatusCode(&code).Raw()
		if code != s.code || !strings.Contains(string(body), s.want) {
			t.Errorf("%s: got %d %s %v, want %d with %s", s.reason, code, body, err, s.code, s.want)
		}
	}
}

// TestTwoPlanes serves one Group from two servers at a time.
func TestTwoPlanes(t *testing.T) {
	t.Parallel()
	g := apis.NewGroup(fruit.GroupVersion(), nil, nil, appleResource())
	one, two := client(t, g), client(t, g)
	path := "/apis/fruit.example.com/v1/namespaces/default/apples"
	body := []byte(`{"apiVersion":"fruit.example.com/v1","kind":"Apple","metadata":{"name":"gala"}}`)
	if err := one.Post().AbsPath(path).Body(body).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	if err := two.Get().AbsPath(path + "/gala").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("what one plane stored, the other has: %v", err)
	}
}

func client(t *testing.T, g *apis.Group) rest.Interface {
	t.Helper()
	s, err := controlplane.New("fruits").Storage(memory.Store{}).With(g).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	case <-time.After(30 * time.Second):
		t.Fatal("not ready in 30 s")
	}
	config := s.ClientConfig()
	config.NegotiatedSerializer = runtime.NewSimpleNegotiatedSerializer(runtime.SerializerInfo{MediaType: runtime.ContentTypeJSON})
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.UnversionedRESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
