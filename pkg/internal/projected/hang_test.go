package projected_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"

	"github.com/sailplane-dev/sailplane/pkg/internal/projected"
)

// hanging is a resource below whose calls end with their context.
type hanging struct{ projected.Below }

func (hanging) String() string { return "trees" }

// Get implements projected.Reader.
func (hanging) Get(ctx context.Context, _, _ string, _ metav1.GetOptions) (projected.Object, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// List implements projected.Reader.
func (hanging) List(ctx context.Context, _ string, _ metav1.ListOptions) (*projected.Page, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// GetToWrite implements projected.Writer.
func (hanging) GetToWrite(ctx context.Context, _, _ string) (*unstructured.Unstructured, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestHangs: a resource below that does not answer has clients wait for ten seconds, and then know
// why.
func TestHangs(t *testing.T) {
	t.Parallel()
	const key = "/apples/default/gala"
	for name, call := range map[string]func(context.Context, *projected.Store) error{
		"get": func(ctx context.Context, s *projected.Store) error {
			return s.Get(ctx, key, storage.GetOptions{}, &unstructured.Unstructured{})
		},
		"list": func(ctx context.Context, s *projected.Store) error {
			return s.GetList(ctx, "/apples", storage.ListOptions{Predicate: storage.Everything, Recursive: true}, &unstructured.UnstructuredList{})
		},
		"update": func(ctx context.Context, s *projected.Store) error {
			return s.GuaranteedUpdate(ctx, key, &unstructured.Unstructured{}, false, nil,
				storage.SimpleUpdate(func(o runtime.Object) (runtime.Object, error) { return o, nil }), nil)
		},
		"delete": func(ctx context.Context, s *projected.Store) error {
			return s.Delete(ctx, key, &unstructured.Unstructured{}, nil, rest.ValidateAllObjectFunc, nil, storage.DeleteOptions{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := projected.New(projected.Config{
					Projection: projected.Projection{Below: hanging{}},
					Resource:   schema.GroupResource{Resource: "apples"}, Kind: "Apple",
					Cache: cacher.Config{ResourcePrefix: "/apples"},
				})
				begun := time.Now()
				err := call(t.Context(), s)
				if took := time.Since(begun); took != 10*time.Second {
					t.Errorf("it took %v", took)
				}
				if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "trees: no answer in 10s") {
					t.Errorf("the answer is %v", err)
				}
			})
		})
	}
}
