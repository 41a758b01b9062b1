package planetest_test

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/kine/memory"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// TestOnDemand: what is made on demand tells the same of itself as what is made at
// the start, before it was used and after.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	eager, err := controlplane.New("eager").Storage(memory.Store{}).With(namespaces(), kube.Apps(), kube.Batch()).Build()
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- eager.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
	<-eager.Ready()
	parts := []controlplane.Part{planetest.WithoutDefaults(), namespaces(), kube.Apps(), kube.Batch()}
	planetest.Start(t, parts...) // the next one knows what discovery says
	for _, path := range []string{"/openapi/v3", "/openapi/v3/apis/apps/v1", "/openapi/v2", "/apis", "/apis/apps/v1", "/apis/batch", "/"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			plane := planetest.Start(t, parts...)
			want, got := keys(t, eager.ClientConfig(), path), keys(t, plane.Config(), path)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-at once +on demand):\n%s", path, diff)
			}
			plane.Apply(t, planetest.YAML(`{apiVersion: batch/v1, kind: Job, metadata: {name: x}, spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}}`))
			if diff := cmp.Diff(want, keys(t, plane.Config(), path)); diff != "" {
				t.Errorf("%s after a use (-at once +on demand):\n%s", path, diff)
			}
		})
	}
}

// keys are what there is in a document, or all of it where it has no paths.
func keys(t *testing.T, c *rest.Config, path string) any {
	t.Helper()
	c = rest.CopyConfig(c)
	c.NegotiatedSerializer = scheme.Codecs
	client, err := rest.UnversionedRESTClientFor(c)
	must(t, err)
	data, err := client.Get().AbsPath(path).SetHeader("Accept", "application/json").Do(t.Context()).Raw()
	must(t, err)
	var document map[string]any
	must(t, json.Unmarshal(data, &document))
	if paths, ok := document["paths"].(map[string]any); ok {
		return slices.Sorted(maps.Keys(paths))
	}
	return document
}
