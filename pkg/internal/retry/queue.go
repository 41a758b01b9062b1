// Package retry is the work queue of a controller: a key whose handling fails comes
// again after a pause.
package retry

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
)

// Queue is a work queue of keys. Make it with [NewQueue], and end it with ShutDown
// where Run is not reached.
type Queue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
	first time.Duration
}

// NewQueue returns a queue in which the pause after an error doubles, from the first
// to the last one.
func NewQueue[K comparable](first, last time.Duration) *Queue[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, last)
	return &Queue[K]{workqueue.NewTypedRateLimitingQueue(limiter), first}
}

// Run handles keys, as many at the same time as there are workers, until the context
// ends. It returns when all handlers have. An error goes to failed, but for conflicts: a
// newer version of the object is on its way, and the pause does not grow.
func (q *Queue[K]) Run(ctx context.Context, workers int, handle func(context.Context, K) error, failed func(context.Context, K, error)) {
	defer context.AfterFunc(ctx, q.ShutDown)()
	var working sync.WaitGroup
	defer working.Wait()
	for range workers {
		working.Go(func() {
			for {
				key, quit := q.Get()
				if quit {
					return
				}
				switch err := handle(ctx, key); {
				case err == nil:
					q.Forget(key)
				case ctx.Err() != nil:
				case apierrors.IsConflict(err):
					q.AddAfter(key, q.first)
				default:
					failed(ctx, key, err)
					q.AddRateLimited(key)
				}
				q.Done(key)
			}
		})
	}
}

// UnlessGone returns err, or nil if it says that the object is gone.
func UnlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
