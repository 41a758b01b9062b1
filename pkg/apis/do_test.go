package apis_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// Shake says how to shake a tree.
type Shake struct {
	metav1.TypeMeta `json:",inline"`

	Force int32 `json:"force,omitempty"`
}

func (s *Shake) DeepCopyObject() runtime.Object { c := *s; return &c }

// OpenAPIModelName is its name in OpenAPI.
func (Shake) OpenAPIModelName() string { return "com.example.fruit.v1.Shake" }

// Harvest is what fell.
type Harvest struct {
	metav1.TypeMeta `json:",inline"`

	Variety string `json:"variety,omitempty"`
	Apples  int32  `json:"apples,omitempty"`
}

func (h *Harvest) DeepCopyObject() runtime.Object { c := *h; return &c }

// OpenAPIModelName is its name in OpenAPI.
func (Harvest) OpenAPIModelName() string { return "com.example.fruit.v1.Harvest" }

func wait(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s did not come in 30 s", what)
	}
}

// TestDo: a post calls the function with the typed body, and its answer is typed too.
func TestDo(t *testing.T) {
	t.Parallel()
	var calls atomic.Int32
	s := serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Do("shake", func(_ context.Context, a *fruit.Apple, in *Shake) (*Harvest, error) {
			calls.Add(1)
			switch {
			case in.Force > 9:
				return nil, apierrors.NewConflict(fruit.GroupVersion().WithResource("apples").GroupResource(), a.Name, context.Canceled)
			case in.Force == 0:
				return nil, nil
			}
			return &Harvest{Variety: a.Spec.Variety, Apples: 2 * in.Force}, nil
		}))).plant()
	s.call(201, http.MethodPost, treePath+"/shake", `{"force":2}`).
		has("an answer", "kind", `"Harvest"`, "apiVersion", `"fruit.example.com/v1"`, "variety", `"cox"`, "apples", "4")
	s.call(201, http.MethodPost, treePath+"/shake", `{"kind":"Shake","apiVersion":"fruit.example.com/v1"}`).
		has("no answer", "kind", `"Status"`, "status", `"Success"`)
	s.call(409, http.MethodPost, treePath+"/shake", `{"force":10}`)
	s.call(400, http.MethodPost, treePath+"/shake", `{"kind":"Harvest","apiVersion":"fruit.example.com/v1"}`)
	s.call(400, http.MethodPost, treePath+"/shake?fieldValidation=Strict", `{"forse":1}`)
	before := calls.Load()
	s.call(404, http.MethodPost, "v1/namespaces/garden/apples/other/shake", `{"force":2}`)
	s.call(405, http.MethodGet, treePath+"/shake", "")
	s.call(201, http.MethodPost, treePath+"/shake?dryRun=All", `{"force":2}`).has("a dry run", "kind", `"Harvest"`, "apples", "")
	if got := calls.Load(); got != before {
		t.Errorf("the function was called %d times where nothing is to be done", got-before)
	}
	got := s.call(200, http.MethodGet, "v1", "").at("resources")
	const want = `{"kind":"Shake","name":"apples/shake","namespaced":true,"singularName":"","verbs":["create"]}`
	if !strings.Contains(got, want) {
		t.Errorf("discovery lacks %s: %s", want, got)
	}
}

// Nameless inherits its name in OpenAPI.
type Nameless struct {
	metav1.TypeMeta `json:",inline"`
}

func (n *Nameless) DeepCopyObject() runtime.Object { c := *n; return &c }

// Nested is no query.
type Nested struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (n *Nested) DeepCopyObject() runtime.Object { c := *n; return &c }

// TestBodies: what is wrong with the types of sub-resources is known before anything is served.
func TestBodies(t *testing.T) {
	t.Parallel()
	for want, option := range map[string]apis.Option{
		"inherits its name": apis.Do("do", func(context.Context, *fruit.Apple, *Nameless) (*Harvest, error) { return nil, nil }),
		"cannot be a parameter": apis.Stream("read", func(context.Context, *fruit.Apple, *Nested) (io.ReadCloser, error) {
			return nil, nil
		}),
	} {
		err := apis.Resource[fruit.Apple, fruit.AppleList]("apples", option).Register(runtime.NewScheme(), fruit.GroupVersion())
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
