package verify

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// builtIn are samples of the kinds of Kubernetes that need more than a name.
//
//go:embed samples.yaml
var builtIn string

// ReadSamples reads the objects of YAML documents, for [Options].
func ReadSamples(from io.Reader) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for documents := yaml.NewYAMLOrJSONDecoder(from, 4096); ; {
		o := &unstructured.Unstructured{}
		err := documents.Decode(o)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if o.Object != nil {
			all = append(all, o)
		}
	}
}

// sampleOf is the content of the last sample of the kind, if there is one. One of the same version is
// better than another, whose fields may have other names.
func (r *resource) sampleOf(samples []*unstructured.Unstructured) map[string]any {
	var found *unstructured.Unstructured
	for _, o := range samples {
		gvk := o.GroupVersionKind()
		if gvk.Group != r.gvr.Group || gvk.Kind != r.kind {
			continue
		}
		if found == nil || gvk.Version == r.gvr.Version || found.GroupVersionKind().Version != r.gvr.Version {
			found = o
		}
	}
	if found == nil {
		return nil
	}
	sample := found.DeepCopy().Object
	delete(sample, "status")
	sample["metadata"] = map[string]any{"labels": asAny(found.GetLabels()), "annotations": asAny(found.GetAnnotations())}
	return sample
}

// find looks for a sample that the server takes.
func (r *resource) find(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	sample := r.sampleOf(r.Samples)
	if sample == nil {
		own, err := ReadSamples(strings.NewReader(strings.ReplaceAll(builtIn, "NAMESPACE", r.namespace)))
		if err != nil {
			r.why = err.Error()
			return
		}
		if sample = r.sampleOf(own); sample == nil {
			sample = map[string]any{}
		}
	}
	r.sample = sample
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), query: url.Values{"dryRun": {"All"}}, body: r.fresh().Object})
	switch {
	case err != nil:
		r.sample, r.why = nil, err.Error()
	case a.code != http.StatusCreated:
		r.sample, r.why = nil, fmt.Sprintf("%d %s: give a sample", a.code, short(a.body))
	}
}

func asAny(m map[string]string) map[string]any {
	all := map[string]any{}
	for k, v := range m {
		all[k] = v
	}
	return all
}
