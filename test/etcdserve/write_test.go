//go:build unix

package etcdserve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// configMap is one with a value.
func configMap(name, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"value": value},
	}}
}

// write creates n objects, updates two of three, and deletes one of three. It returns the changes that a
// watch is to see of them.
func write(ctx context.Context, c dynamic.ResourceInterface, writer string, n int) (made []change, err error) {
	for i := range n {
		name := fmt.Sprintf("%s-%d", writer, i)
		o, err := c.Create(ctx, configMap(name, "a"), metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		made = append(made, changed(watch.Added, o))
		if i%3 > 0 {
			o.Object["data"] = map[string]any{"value": "b"}
			if o, err = c.Update(ctx, o, metav1.UpdateOptions{}); err != nil {
				return nil, err
			}
			made = append(made, changed(watch.Modified, o))
		}
		if i%3 > 1 {
			version := o.GetResourceVersion()
			err := c.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
			if err != nil {
				return nil, err
			}
			made = append(made, change{string(watch.Deleted), name, unknown}) // the answer does not have it
		}
	}
	return made, nil
}

// finish creates the last object, which ends watches.
func finish(t *testing.T, c dynamic.ResourceInterface) change {
	t.Helper()
	o, err := c.Create(t.Context(), configMap(last, ""), metav1.CreateOptions{})
	must(t, err)
	return changed(watch.Added, o)
}

// together calls a function n times at once, and returns the errors.
func together(n int, do func(int) error) error {
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = do(i) })
	}
	group.Wait()
	return errors.Join(errs...)
}
