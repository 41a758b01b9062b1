package crd_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// shift renames the field that v2 calls speeds.
func shift(_ context.Context, o *unstructured.Unstructured, version string) error {
	names := map[string]string{"v1": "gears", "v2": "speeds"}
	from, to := names[o.GroupVersionKind().Version], names[version]
	value, found, err := unstructured.NestedFieldCopy(o.Object, "spec", from)
	if err != nil || !found {
		return err
	}
	if value == int64(13) {
		return errors.New("thirteen gears are unlucky")
	}
	unstructured.RemoveNestedField(o.Object, "spec", from)
	return unstructured.SetNestedField(o.Object, value, "spec", to)
}

// TestConversionInTheProcess: a function converts on the way into and out of the
// storage, whatever conversion the CRD says, and its error reaches the client.
func TestConversionInTheProcess(t *testing.T) {
	t.Parallel()
	_, versions, _ := strings.Cut(bikes, "\nversions:")
	versions = "\nversions:" + versions
	for name, conversion := range map[string]string{
		"none":         "{strategy: None}",
		"another":      "{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://elsewhere.invalid'}}}",
		"of a Service": "{strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {service: {name: a, namespace: b}, caBundle: Cg==}}}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := start(t, crd.Conversion{Kind: schema.GroupKind{Group: "example.com", Kind: "Bike"}, Handler: crd.ConvertFunc(shift)})
			text := "conversion: " + conversion + versions
			p.define(t, definition(t, "bikes", "Bike", text))
			p.define(t, definition(t, "cars", "Car", versions))
			v1, v2 := p.of("bikes", "v1"), p.of("bikes", "v2")
			create(t, v1, bike("v1", "a", "{gears: 3}"))
			create(t, v1, bike("v1", "unlucky", "{gears: 12}"))
			if err := wantField(get(t, v2, "a"), "spec.speeds", int64(3)); err != nil {
				t.Error(err)
			}
			create(t, v2, bike("v2", "b", "{speeds: 21}"))
			if err := wantField(get(t, v1, "b"), "spec.gears", int64(21)); err != nil {
				t.Error(err)
			}
			_, err := v2.Create(t.Context(), object(t, bike("v2", "c", "{speeds: 13}")), metav1.CreateOptions{})
			if err == nil || !strings.Contains(err.Error(), "thirteen gears are unlucky") {
				t.Errorf("a conversion that fails: %v", err)
			}
			// Another kind is not converted.
			create(t, p.of("cars", "v1"), strings.Replace(bike("v1", "a", "{gears: 3}"), "Bike", "Car", 1))
			if got := at(get(t, p.of("cars", "v2"), "a"), "spec.speeds"); got != nil {
				t.Errorf("a car was converted: %v", got)
			}
		})
	}
}

// TestConversionByService: a CRD that names a Service is converted by the handler
// that answers for it.
func TestConversionByService(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 100)
	answer := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.ServeHost("hooks.system.svc:8443", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			paths <- r.Host + r.URL.Path
			crd.ConvertFunc(shift).ServeHTTP(w, r)
		}))
		return nil
	})
	p := start(t, answer)
	client := "{service: {name: hooks, namespace: system, port: 8443, path: /convert}}"
	p.define(t, definition(t, "bikes", "Bike", strings.Replace(bikes, "CLIENT", client, 1)))
	create(t, p.of("bikes", "v1"), bike("v1", "a", "{gears: 3}"))
	if err := wantField(get(t, p.of("bikes", "v2"), "a"), "spec.speeds", int64(3)); err != nil {
		t.Error(err)
	}
	if got, want := <-paths, "hooks.system.svc:8443/convert"; got != want {
		t.Errorf("the handler was asked at %s, want %s", got, want)
	}
}

func TestConvertFuncRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		reason, body, want string
		code               int
	}{
		"no JSON":    {"what cannot be read is refused", "{", "read a ConversionReview", http.StatusBadRequest},
		"no request": {"an answer is no request", "{}", "no request", http.StatusBadRequest},
		"version": {
			"a version must be one", `{"request": {"uid": "x", "desiredAPIVersion": "a/b/c"}}`, "unexpected GroupVersion string", http.StatusOK,
		},
		"object": {
			"an object must be one", `{"request": {"uid": "x", "desiredAPIVersion": "a/b", "objects": [{}]}}`, "Failure", http.StatusOK,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := httptest.NewRecorder()
			crd.ConvertFunc(shift).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body)))
			if w.Code != test.code || !strings.Contains(w.Body.String(), test.want) {
				t.Errorf("%s: got %d %s", test.reason, w.Code, w.Body)
			}
		})
	}
}

func TestConversionIncomplete(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: "example.com", Kind: "Bike"}
	whole := crd.Conversion{Kind: kind, Handler: crd.ConvertFunc(shift)}
	tests := map[string]struct {
		reason, want string
		parts        []controlplane.Part
	}{
		"nothing":    {"a conversion without a handler would fail later", "field Handler: is nil", []controlplane.Part{crd.Conversion{Kind: kind}}},
		"two of one": {"one of them would not be asked", "already has one with that name", []controlplane.Part{whole, whole}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(crd.Definitions{}).With(test.parts...).Build()
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: got %v", test.reason, err)
			}
		})
	}
}
