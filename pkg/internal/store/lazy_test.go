package store

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// TestLazy: what needs no watch cache makes none.
func TestLazy(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		use    func(ctx context.Context, s storage.Interface) error
		opened bool
	}{
		"create": {"the storage does it", func(ctx context.Context, s storage.Interface) error {
			return s.Create(ctx, "/x", nil, nil, 0)
		}, false},
		"get": {"the storage answers", func(ctx context.Context, s storage.Interface) error {
			return s.Get(ctx, "/x", storage.GetOptions{}, nil)
		}, false},
		"get of any version": {"what the storage says is any version, too", func(ctx context.Context, s storage.Interface) error {
			return s.Get(ctx, "/x", storage.GetOptions{ResourceVersion: "0"}, nil)
		}, false},
		"update": {"the object is read first", func(ctx context.Context, s storage.Interface) error {
			return s.GuaranteedUpdate(ctx, "/x", nil, false, nil, nil, nil)
		}, false},
		"delete": {"the object is read first", func(ctx context.Context, s storage.Interface) error {
			return s.Delete(ctx, "/x", nil, nil, nil, nil, storage.DeleteOptions{})
		}, false},
		"readiness": {"it waits for nothing", func(_ context.Context, s storage.Interface) error {
			return s.ReadinessCheck()
		}, false},
		"list": {"who lists lists again", func(ctx context.Context, s storage.Interface) error {
			return s.GetList(ctx, "/x", storage.ListOptions{}, nil)
		}, true},
		"watch": {"one watch of the storage is for all", func(ctx context.Context, s storage.Interface) error {
			_, err := s.Watch(ctx, "/x", storage.ListOptions{})
			return err
		}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opened := 0
			l := newLazy(agreeing{}, schema.GroupResource{}, func() uint64 { return 1 }, func() (*cached, error) {
				opened++
				return nil, errMade
			})
			for range 2 { // what could not be made is tried again
				want := error(nil)
				if tc.opened {
					want = errMade
				}
				if err := tc.use(t.Context(), l); !errors.Is(err, want) {
					t.Errorf("%s: error %v, want %v", tc.reason, err, want)
				}
			}
			if want := map[bool]int{true: 2}[tc.opened]; opened != want {
				t.Errorf("%s: asked for a cache %d times, want %d", tc.reason, opened, want)
			}
			l.stop()
			if err := tc.use(t.Context(), l); tc.opened && !errors.Is(err, source.ErrClosed) {
				t.Errorf("%s: after the end: %v, want %v", tc.reason, err, source.ErrClosed)
			}
		})
	}
}

const errMade = constError("no cache")

type constError string

func (e constError) Error() string { return string(e) }

// agreeing is a store that does whatever it is asked, which is nothing.
type agreeing struct{ storage.Interface }

func (agreeing) Create(context.Context, string, runtime.Object, runtime.Object, uint64) error {
	return nil
}

func (agreeing) Get(context.Context, string, storage.GetOptions, runtime.Object) error { return nil }

func (agreeing) GuaranteedUpdate(
	context.Context, string, runtime.Object, bool, *storage.Preconditions, storage.UpdateFunc, runtime.Object,
) error {
	return nil
}

func (agreeing) Delete(
	context.Context, string, runtime.Object, *storage.Preconditions, storage.ValidateObjectFunc, runtime.Object, storage.DeleteOptions,
) error {
	return nil
}

func (agreeing) ReadinessCheck() error { return nil }
