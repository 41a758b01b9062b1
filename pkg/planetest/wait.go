package planetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"
)

// WaitFor waits until all checks hold for an object at the same time, and returns
// it as it was then, or nil when it is gone. It watches the object, so that no
// state is missed. The object needs its name, its namespace and its kind: see
// [Object] and [Options.Scheme].
func (p *Plane) WaitFor(t TB, object runtime.Object, checks ...Check) *unstructured.Unstructured {
	t.Helper()
	o, err := toUnstructured(p.server.scheme, object)
	if err == nil {
		ctx, cancel := p.within(contextOf(t))
		defer cancel()
		o, err = p.waitFor(ctx, o, checks...)
	}
	if err != nil {
		t.Fatalf("wait: %v", err)
	}
	return o
}

// within bounds the context by the patience.
func (p *Plane) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, p.patience, fmt.Errorf("not after %v", p.patience))
}

func (p *Plane) waitFor(ctx context.Context, o *unstructured.Unstructured, checks ...Check) (*unstructured.Unstructured, error) {
	resource, err := p.resource(o)
	if err != nil {
		return nil, err
	}
	var last *unstructured.Unstructured
	lacks := errors.New("it was not read")
	err = p.follow(ctx, resource, o.GetName(), func(o *unstructured.Unstructured) bool {
		last, lacks = o, nil
		for _, check := range checks {
			lacks = errors.Join(lacks, check(o))
		}
		return lacks == nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w%s", describe(o), err, lacks, excerpt(last))
	}
	return last, nil
}

// excerpt is an object as messages show it.
func excerpt(o *unstructured.Unstructured) string {
	if o == nil {
		return ""
	}
	o = o.DeepCopy()
	o.SetManagedFields(nil)
	return "\n" + asYAML(o)
}

// asYAML is an object as text. Everything that came as JSON or YAML has one.
func asYAML(o *unstructured.Unstructured) string {
	data, err := yaml.Marshal(o.Object)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// follow calls see with every state of an object, nil when there is none, until
// it returns true.
func (p *Plane) follow(
	ctx context.Context, resource dynamic.ResourceInterface, name string, see func(*unstructured.Unstructured) bool,
) error {
	only := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	for {
		list, err := resource.List(ctx, metav1.ListOptions{FieldSelector: only})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		var now *unstructured.Unstructured
		if len(list.Items) > 0 {
			now = &list.Items[0]
		}
		if see(now) {
			return nil
		}
		w, err := resource.Watch(ctx, metav1.ListOptions{FieldSelector: only, ResourceVersion: list.GetResourceVersion()})
		if err == nil {
			_, err = watchtools.UntilWithoutRetry(ctx, w, func(e watch.Event) (bool, error) {
				o, _ := e.Object.(*unstructured.Unstructured)
				switch e.Type {
				case watch.Error:
					return false, apierrors.FromObject(e.Object)
				case watch.Deleted:
					o = nil
				}
				return see(o), nil
			})
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rewatch): // the watch ended: its CRD may have changed
		}
	}
}

// rewatch paces a watch that ends at once.
const rewatch = 10 * time.Millisecond
