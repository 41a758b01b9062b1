package retry_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

var widgets = schema.GroupResource{Group: "example.com", Resource: "widgets"}

func TestRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	answers := map[string][]error{
		"right":    {nil},
		"broken":   {errors.New("broken"), errors.New("broken"), nil},
		"conflict": {apierrors.NewConflict(widgets, "conflict", errors.New("newer")), nil},
	}
	var mu sync.Mutex
	var told []string
	tried := map[string]int{}
	left := len(answers)
	q := retry.NewQueue[string](time.Microsecond, time.Millisecond)
	for key := range answers {
		q.Add(key)
	}
	q.Run(ctx, 2, func(_ context.Context, key string) error {
		mu.Lock()
		defer mu.Unlock()
		err := answers[key][tried[key]]
		if tried[key]++; err == nil {
			if left--; left == 0 {
				cancel()
			}
		}
		return err
	}, func(_ context.Context, key string, _ error) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, key)
	})
	for key, want := range answers {
		if tried[key] != len(want) {
			t.Errorf("%s: handled %d times, want %d", key, tried[key], len(want))
		}
	}
	if want := []string{"broken", "broken"}; !slices.Equal(told, want) {
		t.Errorf("failed was called for %v, want %v", told, want)
	}
}

// TestRunEnds ends the context while a key is handled: Run waits for it, and what is
// left in the queue is not handled.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var ended atomic.Bool
	q := retry.NewQueue[int](time.Microsecond, time.Millisecond)
	q.Add(1)
	q.Run(ctx, 1, func(ctx context.Context, _ int) error {
		cancel()
		<-ctx.Done()
		ended.Store(true)
		return ctx.Err()
	}, func(_ context.Context, key int, err error) {
		t.Errorf("failed was called for %d after the end: %v", key, err)
	})
	if !ended.Load() {
		t.Error("Run returned before its handler")
	}
	if !q.ShuttingDown() {
		t.Error("the queue takes keys after the end")
	}
}

func TestUnlessGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ err, want error }{
		"gone":  {err: apierrors.NewNotFound(widgets, "w")},
		"right": {},
	} {
		if got := retry.UnlessGone(c.err); !errors.Is(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	broken := errors.New("broken")
	if got := retry.UnlessGone(broken); !errors.Is(got, broken) {
		t.Errorf("another error: %v, want %v", got, broken)
	}
}
