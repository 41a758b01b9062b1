package store

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// listing is a store that counts its lists.
type listing struct {
	storage.Interface
	lists *int
}

func (l listing) GetList(context.Context, string, storage.ListOptions, runtime.Object) error {
	*l.lists++
	return nil
}

// TestHeld: what has many objects is read when it is wanted, and never after the end.
func TestHeld(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason  string
		count   int64
		failure error
		before  func(*held)
		back    bool
		want    error
		lists   int
	}{
		"few":       {"little is read at once", many - 1, nil, func(*held) {}, false, nil, 2},
		"uncounted": {"the list says what is wrong", many, errMade, func(*held) {}, false, nil, 2},
		"wanted":    {"who asks first waits for no count", many, nil, func(h *held) { h.want() }, false, nil, 2},
		"ended":     {"nobody will ask", many, nil, func(h *held) { h.end() }, true, endedError{}, 0},
		"later":     {"somebody asks while it is held back", many, nil, func(h *held) { go func() { <-h.back; h.want() }() }, false, nil, 2},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lists, count, failure := 0, tc.count, tc.failure
			h := newHeld(listing{lists: &lists}, func(context.Context) (int64, error) { return count, failure })
			tc.before(h)
			for range 2 { // a cache that reads again is not held back, whatever there is by then
				if err := h.GetList(t.Context(), "/x", storage.ListOptions{}, nil); !errors.Is(err, tc.want) {
					t.Errorf("%s: error %v, want %v", tc.reason, err, tc.want)
				}
				count, failure = many, nil
			}
			if lists != tc.lists || h.isBack() != tc.back {
				t.Errorf("%s: %d lists, held back %v; want %d and %v", tc.reason, lists, h.isBack(), tc.lists, tc.back)
			}
		})
	}
}
