package streams

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// Shake is the body of a sub-resource, and Harvest its answer.
type Shake struct {
	metav1.TypeMeta `json:",inline"`

	Force int32 `json:"force,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *Shake) DeepCopyObject() runtime.Object { c := *s; return &c }

// OpenAPIModelName is its name in OpenAPI.
func (Shake) OpenAPIModelName() string { return "com.example.fruit.v1.Shake" }

// Harvest is what fell.
type Harvest struct {
	metav1.TypeMeta `json:",inline"`

	Apples int32 `json:"apples,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (h *Harvest) DeepCopyObject() runtime.Object { c := *h; return &c }

// OpenAPIModelName is its name in OpenAPI.
func (Harvest) OpenAPIModelName() string { return "com.example.fruit.v1.Harvest" }

// apples are shaken.
func apples() *apis.Group {
	return apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Do("shake", shake)))
}

func shake(_ context.Context, _ *fruit.Apple, in *Shake) (*Harvest, error) {
	return &Harvest{Apples: 2 * in.Force}, nil
}

// TestDocuments: discovery and OpenAPI have what streams and what does something, with its
// kinds and parameters.
func TestDocuments(t *testing.T) {
	t.Parallel()
	p := serve(t)
	type parameter struct{ Name string }
	var document struct {
		Paths map[string]struct {
			Parameters []parameter
			Get        *struct{ Parameters []parameter }
			Post       *struct{ RequestBody, Responses any }
		}
	}
	read := func(path string) {
		t.Helper()
		document.Paths = nil
		must(t, json.Unmarshal([]byte(said(t, p.kubectl(t, "", "get", "--raw", path))), &document))
	}
	read("/openapi/v3/api/v1")
	for name, want := range map[string]string{
		"log": "tailLines", "exec": "command", "attach": "stdin", "portforward": "ports", "proxy": "path",
	} {
		path := document.Paths["/api/v1/namespaces/{namespace}/pods/{name}/"+name]
		if path.Get == nil || !slices.Contains(append(path.Parameters, path.Get.Parameters...), parameter{want}) {
			t.Errorf("OpenAPI lacks a GET of %s with the parameter %s: %v", name, want, path)
		}
	}
	read("/openapi/v3/apis/fruit.example.com/v1")
	post := document.Paths["/apis/fruit.example.com/v1/namespaces/{namespace}/apples/{name}/shake"].Post
	if post == nil {
		t.Fatal("OpenAPI has no shake")
	}
	in, err := json.Marshal(post.RequestBody)
	must(t, err)
	out, err := json.Marshal(post.Responses)
	must(t, err)
	if !strings.Contains(string(in), "Shake") || !strings.Contains(string(out), "Harvest") {
		t.Errorf("shake takes %s and gives %s", in, out)
	}
}
