package kept

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// broken is what is kept and is no object, as far as it was seen. As long as there is some, the
// condition of the keeper says so: nobody sees it in a list. It says what the keeper warns of as well.
type broken struct {
	resource schema.GroupResource
	told     func(error)
	warning  func() error

	mu  sync.Mutex
	all map[keep.Key]error
}

// newBroken returns that of a keeper.
func newBroken(resource schema.GroupResource, report func(error), keeper any) *broken {
	b := &broken{resource: resource, told: report, warning: func() error { return nil }, all: map[keep.Key]error{}}
	if w, ok := keeper.(keep.Warner); ok {
		b.warning = w.Warning
	}
	return b
}

// answer is that to a client who asks for one.
func (b *broken) answer(key keep.Key, why error) error {
	return apierrors.NewInternalError(fmt.Errorf("%s %s cannot be read: %w: correct it where it is kept, or delete it",
		b.resource, key, why))
}

// report reports the error of a call. A call that was answered may have left something out.
func (b *broken) report(err error) {
	if err == nil {
		err = b.problem()
	}
	b.told(err)
}

// problem is what the condition says.
func (b *broken) problem() error {
	left, warning := b.leftOut(), b.warning()
	switch {
	case left == nil:
		return warning
	case warning == nil:
		return left
	}
	return fmt.Errorf("%w; %w", left, warning)
}

// leftOut is what it says of those that are no objects.
func (b *broken) leftOut() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := keep.Key{}
	for key := range b.all {
		if first == (keep.Key{}) || key.Compare(first) < 0 {
			first = key
		}
	}
	if len(b.all) == 0 {
		return nil
	}
	return fmt.Errorf("%d left out, which cannot be read: %w", len(b.all), b.all[first])
}

// is notes why what is kept of a key is no object; nil: it is, or there is none.
func (b *broken) is(ctx context.Context, key keep.Key, why error) {
	b.mu.Lock()
	before, known := b.all[key]
	switch {
	case why != nil:
		b.all[key] = why
	case known:
		delete(b.all, key)
	}
	b.mu.Unlock()
	if why != nil && (!known || before.Error() != why.Error()) {
		klog.FromContext(ctx).Error(why, "What is kept is no object: it is left out until it is corrected or deleted",
			"resource", b.resource, "name", key)
	}
	if known != (why != nil) {
		b.report(nil)
	}
}

// noteBroken notes what of a page is no object, and that all else in its range is not.
func noteBroken[T any, PT Object[T]](ctx context.Context, b *broken, r keep.Range, page keep.Page[T]) {
	found := map[keep.Key]error{}
	last := keep.Key{}
	for _, item := range page.Items {
		if o := PT(item.Object); o != nil {
			last = keep.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
		}
		if item.Broken != nil {
			found[last] = item.Broken
		}
	}
	b.mu.Lock()
	for key := range b.all {
		if key.Compare(r.After) > 0 && (r.Namespace == "" || r.Namespace == key.Namespace) && (!page.More || key.Compare(last) <= 0) {
			if _, still := found[key]; !still {
				found[key] = nil
			}
		}
	}
	b.mu.Unlock()
	for _, key := range slices.SortedFunc(maps.Keys(found), keep.Key.Compare) {
		b.is(ctx, key, found[key])
	}
}
