package projected

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Stored reads a resource of this server where it is stored, if it is one of the groups of Go types,
// and by its API otherwise. What is stored in the version that is asked for is not encoded on the way.
type Stored struct {
	// Client reads what is not found.
	*Client

	// Find returns the storage of the resource, if it has what the projection publishes. It is
	// called when the view is first read: all storage is built by then.
	Find func() (rest.Storage, bool)

	once  sync.Once
	found readable
}

// readable is a storage that can be read.
type readable interface {
	rest.Getter
	rest.Lister
	rest.Watcher
}

var _ Reader = (*Stored)(nil)

func (s *Stored) stored() readable {
	s.once.Do(func() {
		if storage, is := s.Find(); is {
			s.found, _ = storage.(readable)
		}
	})
	return s.found
}

// Get implements Reader.
func (s *Stored) Get(ctx context.Context, namespace, name string, options metav1.GetOptions) (Object, error) {
	r := s.stored()
	if r == nil {
		return s.Client.Get(ctx, namespace, name, options)
	}
	obj, err := r.Get(request.WithNamespace(ctx, namespace), name, &options)
	if err != nil {
		return nil, err
	}
	return object(obj)
}

// List implements Reader.
func (s *Stored) List(ctx context.Context, namespace string, options metav1.ListOptions) (*Page, error) {
	r := s.stored()
	if r == nil {
		return s.Client.List(ctx, namespace, options)
	}
	internal, err := internalOptions(options)
	if err != nil {
		return nil, err
	}
	list, err := r.List(request.WithNamespace(ctx, namespace), internal)
	if err != nil {
		return nil, err
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	page := &Page{Items: make([]Object, 0, meta.LenList(list)), Version: m.GetResourceVersion(), Continue: m.GetContinue()}
	return page, meta.EachListItem(list, func(item runtime.Object) error {
		obj, err := object(item)
		page.Items = append(page.Items, obj)
		return err
	})
}

// Watch implements Reader.
func (s *Stored) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	r := s.stored()
	if r == nil {
		return s.Client.Watch(ctx, options)
	}
	internal, err := internalOptions(options)
	if err != nil {
		return nil, err
	}
	internal.AllowWatchBookmarks = options.AllowWatchBookmarks
	return r.Watch(ctx, internal)
}

// internalOptions are options as storage takes them.
func internalOptions(options metav1.ListOptions) (*internalversion.ListOptions, error) {
	internal := &internalversion.ListOptions{
		ResourceVersion: options.ResourceVersion, ResourceVersionMatch: options.ResourceVersionMatch,
		Limit: options.Limit, Continue: options.Continue,
	}
	if options.FieldSelector == "" {
		return internal, nil
	}
	var err error
	internal.FieldSelector, err = fields.ParseSelector(options.FieldSelector)
	return internal, err
}

// object is what storage hands out, which may be an object with its encodings.
func object(obj runtime.Object) (Object, error) {
	if cached, is := obj.(runtime.CacheableObject); is {
		obj = cached.GetObject()
	}
	o, is := obj.(Object)
	if !is {
		return nil, fmt.Errorf("%T is no object", obj)
	}
	return o, nil
}
