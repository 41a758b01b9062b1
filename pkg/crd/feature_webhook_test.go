package crd_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// bikes are stored as v1, where spec.gears is what v2 calls spec.speeds.
const bikes = `
conversion:
  strategy: Webhook
  webhook:
    conversionReviewVersions: [v1]
    clientConfig: CLIENT
versions:
- name: v1
  served: true
  storage: true
  schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {gears: {type: integer}}}}}}
- name: v2
  served: true
  storage: false
  schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {speeds: {type: integer, maximum: 30}}}}}}
`

func bike(version, name, spec string) string {
	return "{apiVersion: example.com/" + version + ", kind: Bike, metadata: {name: " + name + "}, spec: " + spec + "}"
}

// converter is a conversion webhook.
type converter struct {
	*httptest.Server
	calls atomic.Int32
	// broken has it fail: "status" with a 500, "result" with a refusal.
	broken atomic.Value
}

func newConverter(t *testing.T) *converter {
	t.Helper()
	c := &converter{}
	c.broken.Store("")
	c.Server = httptest.NewTLSServer(c)
	t.Cleanup(c.Close)
	return c
}

// client is the clientConfig that reaches it.
func (c *converter) client() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw})
	return fmt.Sprintf("{url: %q, caBundle: %s}", c.URL+"/convert", base64.StdEncoding.EncodeToString(ca))
}

func (c *converter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.calls.Add(1)
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil || r.URL.Path != "/convert" {
		http.Error(w, fmt.Sprint(err, r.URL.Path), http.StatusBadRequest)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	switch c.broken.Load() {
	case "status":
		http.Error(w, "flat tyre", http.StatusInternalServerError)
		return
	case "result":
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: "no such bike"}
	default:
		for _, raw := range review.Request.Objects {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(raw.Raw); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			from, to := "gears", "speeds"
			if strings.HasSuffix(review.Request.DesiredAPIVersion, "/v1") {
				from, to = to, from
			}
			u.SetAPIVersion(review.Request.DesiredAPIVersion)
			if v, ok, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", from); ok {
				_ = unstructured.SetNestedField(u.Object, v, "spec", to)
				unstructured.RemoveNestedField(u.Object, "spec", from)
			}
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: u})
		}
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// TestConversionWebhook: a webhook with a CA of its own renames a field on
// every way into and out of the storage.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	hook := newConverter(t)
	p := start(t)
	p.define(t, definition(t, "bikes", "Bike", strings.Replace(bikes, "CLIENT", hook.client(), 1)))
	v1, v2 := p.of("bikes", "v1"), p.of("bikes", "v2")
	create(t, v1, bike("v1", "a", "{gears: 3}"))
	w, err := v2.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if e, ok := (<-w.ResultChan()).Object.(*unstructured.Unstructured); !ok || at(e, "spec.speeds") != int64(3) {
		t.Errorf("watch of v2: %v", e)
	}
	if u := get(t, v2, "a"); at(u, "spec.speeds") != int64(3) || at(u, "spec.gears") != nil {
		t.Errorf("a v1 bike as v2: %v", u.Object)
	}
	if u := create(t, v2, bike("v2", "b", "{speeds: 21}")); at(u, "spec.speeds") != int64(21) {
		t.Errorf("a v2 bike as v2: %v", u.Object)
	}
	if u := get(t, v1, "b"); at(u, "spec.gears") != int64(21) || at(u, "spec.speeds") != nil {
		t.Errorf("a v2 bike as v1: %v", u.Object)
	}
	if u, err := v2.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec": {"speeds": 7}}`), metav1.PatchOptions{}); err != nil || at(u, "spec.speeds") != int64(7) {
		t.Errorf("a patch through v2: %v, %v", u, err)
	}
	if err := wantField(get(t, v1, "a"), "spec.gears", int64(7)); err != nil {
		t.Errorf("after a patch through v2: %v", err)
	}
	_, err = v2.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec": {"speeds": 31}}`), metav1.PatchOptions{})
	if got := causes(t, err)["spec.speeds"]; got == "" {
		t.Errorf("a value that v2 does not allow: %v", err)
	}
	// Every version has a watch cache of converted objects: a list converts nothing again.
	list, err := v2.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || at(&list.Items[0], "spec.speeds") != int64(7) || at(&list.Items[1], "spec.speeds") != int64(21) {
		t.Errorf("a list of v2: %v, %v", list, err)
	}
}

// TestBrokenWebhook: while a webhook fails, what needs it says so, what does not
// works, and nothing is lost or stored half.
func TestBrokenWebhook(t *testing.T) {
	t.Parallel()
	hook := newConverter(t)
	p := start(t)
	p.define(t, definition(t, "bikes", "Bike", strings.Replace(bikes, "CLIENT", hook.client(), 1)))
	v1, v2 := p.of("bikes", "v1"), p.of("bikes", "v2")
	// Broken from the start: what v2's watch cache has converted once, a list gives.
	hook.broken.Store("status")
	before := create(t, v1, bike("v1", "a", "{gears: 3}"))
	for broken, want := range map[string]string{"status": "flat tyre", "result": "no such bike"} {
		hook.broken.Store(broken)
		calls := hook.calls.Load()
		requests := map[string]func() error{
			"get": func() error { _, err := v2.Get(t.Context(), "a", metav1.GetOptions{}); return err },
			"list": func() error {
				// Without retries. The watch cache, which cannot follow, is given up after 3 s.
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				return p.rest(t).Get().AbsPath("/apis/example.com/v2/namespaces/default/bikes").MaxRetries(0).Do(ctx).Error()
			},
			"create": func() error {
				_, err := v2.Create(t.Context(), object(t, bike("v2", "b", "{speeds: 1}")), metav1.CreateOptions{})
				return err
			},
			"patch": func() error {
				_, err := v2.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec": {"speeds": 4}}`), metav1.PatchOptions{})
				return err
			},
		}
		for verb, f := range requests {
			if err := f(); err == nil || !strings.Contains(err.Error(), "conversion webhook for example.com/") || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with a broken %s: %v, want %q", verb, broken, err, want)
			}
		}
		t.Logf("%d calls while its %s is broken", hook.calls.Load()-calls, broken)
	}
	if u := get(t, v1, "a"); u.GetResourceVersion() != before.GetResourceVersion() || at(u, "spec.gears") != int64(3) {
		t.Errorf("a broken webhook changed what is stored: %v", u.Object)
	}
	create(t, v1, bike("v1", "c", "{gears: 1}"))
	hook.broken.Store("")
	if list, err := v2.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("after the repair: %v, %v", list, err)
	}
}

// TestWebhookByService: nothing finds Services, and the error says what to do.
func TestWebhookByService(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.define(t, definition(t, "bikes", "Bike", strings.Replace(bikes, "CLIENT", "{service: {namespace: shop, name: convert}}", 1)))
	create(t, p.of("bikes", "v1"), bike("v1", "a", "{gears: 3}"))
	_, err := p.of("bikes", "v2").Get(t.Context(), "a", metav1.GetOptions{})
	if want := "service \"shop/convert\": the server resolves no Services"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("get through a webhook that names a Service: %v, want %q", err, want)
	}
	if err := wantField(get(t, p.of("bikes", "v1"), "a"), "spec.gears", int64(3)); err != nil {
		t.Error(err)
	}
}
