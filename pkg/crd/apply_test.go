package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cachetesting "k8s.io/client-go/tools/cache/testing"
)

// respond writes v as JSON.
func respond(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func accepted(name string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

func mustLoad(t *testing.T, contents map[string]string) []definition {
	t.Helper()
	definitions, _, err := load(files(contents))
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

func TestApply(t *testing.T) {
	t.Parallel()
	const crds = 40
	many := map[string]string{}
	for i := range crds {
		name := fmt.Sprintf("widgets%02d", i)
		many[name+".yaml"] = strings.NewReplacer("name: widgets.", "name: "+name+".", "plural: widgets", "plural: "+name).Replace(widgets)
	}
	var (
		mu           sync.Mutex
		got          []string
		running, top int
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		running++
		top = max(top, running)
		mu.Unlock()
		body, err := io.ReadAll(r.Body)
		var crd apiextensionsv1.CustomResourceDefinition
		if err == nil {
			err = json.Unmarshal(body, &crd)
		}
		mu.Lock()
		running--
		got = append(got, fmt.Sprintf("%s %s %s %s %v", r.Method, r.URL, r.Header.Get("Content-Type"), crd.Name, err))
		mu.Unlock()
		respond(w, http.StatusOK, accepted(path.Base(r.URL.Path)))
	}))
	t.Cleanup(server.Close)

	config := &rest.Config{Host: server.URL}
	if _, err := apply(t.Context(), config, mustLoad(t, many)); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range crds {
		want = append(want, fmt.Sprintf("PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets%02d.example.com"+
			"?fieldManager=sailplane&fieldValidation=Ignore&force=true application/apply-patch+yaml widgets%02d.example.com <nil>", i, i))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if top > applyLimit {
		t.Errorf("%d at a time, want at most %d", top, applyLimit)
	}
	if config.QPS != 0 {
		t.Error("the caller's config is changed")
	}
}

func TestApplyRejected(t *testing.T) {
	t.Parallel()
	kind := schema.GroupKind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}
	cases := map[string]struct {
		reason string
		err    *apierrors.StatusError
		want   string
	}{
		"Causes": {
			reason: "causes have fields, in the internal form and in the published one",
			err: apierrors.NewInvalid(kind, "widgets.example.com", field.ErrorList{
				field.Invalid(field.NewPath("spec", "validation", "openAPIV3Schema", "properties").Key("size").Child("maximum"), 10, "too much"),
				field.Forbidden(field.NewPath("spec", "versions").Index(0).Child("served"), "not now"),
				field.Invalid(field.NewPath("status", "storedVersions"), "v0", "must be there"),
			}),
			want: "widgets.yaml: line 47: spec.versions[0].schema.openAPIV3Schema.properties.size.maximum: Invalid value: 10: too much\n" +
				"widgets.yaml: line 39: spec.versions[0].served: Forbidden: not now",
		},
		"Status": {
			reason: "a cause about the status alone has no line in the file",
			err: apierrors.NewInvalid(kind, "widgets.example.com", field.ErrorList{
				field.Invalid(field.NewPath("status", "storedVersions").Index(0), "v0", "missing from spec.versions"),
			}),
			want: `widgets.yaml: line 32: apply CRD widgets.example.com: CustomResourceDefinition.apiextensions.k8s.io "widgets.example.com" ` +
				`is invalid: status.storedVersions[0]: Invalid value: "v0": missing from spec.versions`,
		},
		"NoCauses": {
			reason: "other errors have the place of the CRD",
			err:    apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "customresourcedefinitions"}, "widgets.example.com", errors.New("no")),
			want: `widgets.yaml: line 32: apply CRD widgets.example.com: customresourcedefinitions.apiextensions.k8s.io "widgets.example.com" ` +
				`is forbidden: no`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if name := path.Base(r.URL.Path); name != "widgets.example.com" {
					respond(w, http.StatusOK, accepted(name))
					return
				}
				status := tc.err.ErrStatus
				status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
				respond(w, int(status.Code), status)
			}))
			t.Cleanup(server.Close)
			defs := mustLoad(t, map[string]string{"widgets.yaml": "---\n" + gadgets + "---\n# here\n" + widgets})
			_, err := apply(t.Context(), &rest.Config{Host: server.URL}, defs)
			if diff := cmp.Diff(tc.want, fmt.Sprint(err)); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestApplyCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopped by the test"))
	defs := mustLoad(t, map[string]string{"a.yaml": widgets, "b.yaml": gadgets})
	_, err := apply(ctx, &rest.Config{Host: "127.0.0.1:1"}, defs)
	if want := "apply CRDs: stopped by the test"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// crdWith is a CRD with conditions given as "Type=Status".
func crdWith(name string, conditions ...string) *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range conditions {
		kind, status, _ := strings.Cut(c, "=")
		crd.Status.Conditions = append(crd.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
			Type:   apiextensionsv1.CustomResourceDefinitionConditionType(kind),
			Status: apiextensionsv1.ConditionStatus(status), Reason: "Because", Message: "it is so",
			LastTransitionTime: metav1.Now(),
		})
	}
	return crd
}

func generation(n int64, crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	crd.Generation = n
	return crd
}

func TestAwaitEstablished(t *testing.T) {
	type crd = apiextensionsv1.CustomResourceDefinition
	cases := map[string]struct {
		reason string
		before []*crd // there when the wait begins
		after  []*crd // written while it waits
		later  time.Duration
		wanted map[string]int64 // generations; nil: any of a and b
		cancel bool
		want   string
	}{
		"Already": {
			reason: "a restart finds them established",
			before: []*crd{crdWith("a", "Established=True"), crdWith("b", "Established=True", "NamesAccepted=True")},
		},
		"Later": {
			reason: "events tell",
			before: []*crd{crdWith("a", "NamesAccepted=True"), crdWith("other", "NamesAccepted=False")},
			after:  []*crd{crdWith("b", "Established=True"), crdWith("a", "Established=True")},
		},
		"Conflict": {
			reason: "a name that is taken stays taken",
			before: []*crd{crdWith("a", "Established=True")},
			after:  []*crd{crdWith("b", "NamesAccepted=False", "Established=False")},
			want:   "CRD b: NamesAccepted is False: Because: it is so",
		},
		"Corrected": {
			reason: "what conditions say of the CRD before it was corrected is not the end",
			before: []*crd{crdWith("a", "NamesAccepted=False"), crdWith("b", "Established=True")},
			after:  []*crd{crdWith("a", "NamesAccepted=True", "Established=True")},
		},
		"CorrectedLater": {
			reason: "controllers of a busy machine look at the correction after seconds",
			before: []*crd{crdWith("a", "NamesAccepted=False"), crdWith("b", "Established=True")},
			after:  []*crd{crdWith("a", "NamesAccepted=True", "Established=True")},
			later:  9 * time.Second,
		},
		"Newer": {
			reason: "what is established is the CRD as it was before",
			before: []*crd{crdWith("a", "Established=True"), crdWith("b", "Established=True")},
			after:  []*crd{generation(2, crdWith("b", "Established=True"))},
			wanted: map[string]int64{"a": 0, "b": 2},
		},
		"NonStructural": {
			reason: "a schema that is not structural is never served",
			before: []*crd{crdWith("a", "NonStructuralSchema=True"), crdWith("b", "Established=True")},
			want:   "CRD a: NonStructuralSchema is True: Because: it is so",
		},
		"Canceled": {
			reason: "the missing ones are named",
			before: []*crd{crdWith("a")},
			cancel: true,
			want:   "wait until CRDs are established: stopped by the test: a, b",
		},
	}
	for name, tc := range cases {
		// In a bubble time passes when nothing else happens: what is refused stands
		// for long when all that is written was seen, and not before.
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := cachetesting.NewFakeControllerSource()
				defer source.Shutdown()
				for _, c := range tc.before {
					source.Add(c)
				}
				informer := cache.NewSharedIndexInformer(source, &crd{}, 0, nil)
				stop, done := make(chan struct{}), make(chan struct{})
				go func() { defer close(done); informer.Run(stop) }()
				defer func() { close(stop); <-done }()
				if !cache.WaitForCacheSync(stop, informer.HasSynced) {
					t.Fatal("not synced")
				}

				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				result := make(chan error)
				wanted := tc.wanted
				if wanted == nil {
					wanted = map[string]int64{"a": 0, "b": 0}
				}
				g := &groups{lister: listers.NewCustomResourceDefinitionLister(informer.GetIndexer())}
				notify := func(any) { g.notify() }
				_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc: notify, UpdateFunc: func(any, any) { g.notify() }, DeleteFunc: notify,
				})
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					_, err := g.awaitAll(ctx, wanted)
					result <- err
				}()
				synctest.Wait() // it has looked at what there was before
				if len(tc.wanted) > 0 {
					select {
					case err := <-result:
						t.Fatalf("%s: it did not wait: %v", tc.reason, err)
					default:
					}
				}
				time.Sleep(tc.later)
				for _, c := range tc.after {
					if _, exists, _ := informer.GetStore().GetByKey(c.Name); exists {
						source.Modify(c)
					} else {
						source.Add(c)
					}
				}
				if tc.cancel {
					cancel(errors.New("stopped by the test"))
				}
				got := ""
				if err := <-result; err != nil {
					got = err.Error()
				}
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}
