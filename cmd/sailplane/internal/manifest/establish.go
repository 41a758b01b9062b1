package manifest

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
)

// patience is how long a definition may take to be served.
const patience = time.Minute

// establish waits until the objects of a definition can be created.
func (i *Import) establish(ctx context.Context, s *subject) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("it was not established in %s", patience))
	defer cancel()
	is, err := s.client.Get(ctx, s.wanted.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	done, err := established(is)
	if err == nil && !done {
		lists := &cache.ListWatch{WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = "metadata.name=" + is.GetName()
			return s.client.Watch(ctx, o)
		}}
		_, err = toolswatch.Until(ctx, is.GetResourceVersion(), lists, func(e watch.Event) (bool, error) {
			u, ok := e.Object.(*unstructured.Unstructured)
			if !ok || e.Type == watch.Deleted {
				return false, fmt.Errorf("it was deleted before it was established")
			}
			return established(u)
		})
	}
	if err == nil {
		err = i.discovered(ctx, is)
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the definition: %w", context.Cause(ctx))
	}
	return err
}

// established tells whether a definition is served. It is an error if it never will be.
func established(u *unstructured.Unstructured) (bool, error) {
	if isTrue(u, "Established") {
		return true, nil
	}
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range all {
		if m, _ := c.(map[string]any); m["type"] == "NamesAccepted" && m["status"] == "False" {
			return false, fmt.Errorf("written, but it is not served: its names are not accepted: %v", m["message"])
		}
	}
	return false, nil
}

// discovered waits until discovery has a version of the definition. A server of this
// project has it by then; others take a moment.
func (i *Import) discovered(ctx context.Context, u *unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	i.Catalog.Forget()
	for _, v := range versions {
		m, _ := v.(map[string]any)
		if m["served"] != true {
			continue
		}
		gvk := schema.GroupVersionKind{Group: group, Version: fmt.Sprint(m["name"]), Kind: kind}
		err := wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(context.Context) (bool, error) {
			_, ok, err := i.Catalog.Kind(gvk)
			if !ok {
				i.Catalog.Forget()
			}
			return ok, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
