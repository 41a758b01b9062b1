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
		"few":       {"little is read at once", many - 1, nil, func(*held) {}, false, nil, 1},
		"uncounted": {"the list says what is wrong", many, errMade, func(*held) {}, false, nil, 1},
		"wanted":    {"who asks first waits for no count", many, nil, func(h *held) { h.want() }, false, nil, 1},
		"ended":     {"nobody will ask", many, nil, func(h *held) { h.end() }, true, endedError{}, 0},
		"later":     {"somebody asks while it is held back", many, nil, func(h *held) { go func() { <-h.back; h.want() }() }, false, nil, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lists := 0
			h := newHeld(listing{lists: &lists}, func(context.Context) (int64, error) { return tc.count, tc.failure })
			tc.before(h)
			if err := h.GetList(t.Context(), "/x", storage.ListOptions{}, nil); !errors.Is(err, tc.want) {
				t.Errorf("%s: error %v, want %v", tc.reason, err, tc.want)
			}
			if lists != tc.lists || h.isBack() != tc.back {
				t.Errorf("%s: %d lists, held back %v; want %d and %v", tc.reason, lists, h.isBack(), tc.lists, tc.back)
			}
		})
	}
}
