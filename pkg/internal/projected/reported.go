package projected

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// reported is a Reader that tells whether the resource below answers.
type reported struct {
	Reader

	store *Store
}

// tell reports the error of a read, unless it is of who asked. What is in memory is as recent as a
// good read, while the watch below is open.
func (r *reported) tell(ctx context.Context, err error) {
	switch cause := context.Cause(ctx); {
	case err == nil || r.store.isOfClient(err):
		if r.store.open.Load() {
			r.store.last.Good(time.Now())
		}
		r.report(nil)
	case cause == nil:
		r.store.last.Fail(err)
		r.report(err)
	case ctx.Err() != context.Canceled:
		r.store.last.Fail(cause)
		r.report(cause)
	}
}

func (r *reported) report(err error) {
	if r.store.Report != nil {
		r.store.Report(err)
	}
}

// Get implements Reader.
func (r *reported) Get(ctx context.Context, namespace, name string, options metav1.GetOptions) (Object, error) {
	obj, err := r.Reader.Get(ctx, namespace, name, options)
	r.tell(ctx, err)
	return obj, err
}

// List implements Reader.
func (r *reported) List(ctx context.Context, namespace string, options metav1.ListOptions) (*Page, error) {
	page, err := r.Reader.List(ctx, namespace, options)
	r.tell(ctx, err)
	return page, err
}

// Watch implements Reader.
func (r *reported) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := r.Reader.Watch(ctx, options)
	r.tell(ctx, err)
	return w, err
}
