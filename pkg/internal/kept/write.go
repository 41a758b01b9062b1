package kept

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// put writes an object for the keeper.
func (s *Store[T, PT]) put(ctx context.Context, o PT, ifVersion int64) (int64, error) {
	given := s.given(o)
	version, err := call(ctx, &s.Config, s.slots, false, func(ctx context.Context) (int64, error) {
		return s.keeper.Put(ctx, given, ifVersion)
	})
	return s.written(o, version, ifVersion, err)
}

// written gives an object the version of its write.
func (s *Store[T, PT]) written(o PT, version, before int64, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	s.changed.Announce()
	if version <= before {
		return 0, s.wrong("it wrote an object of version %d as version %d", before, version)
	}
	return version, s.Versioner().UpdateObject(o, uint64(version))
}

// Create implements storage.Interface.
func (s *Store[T, PT]) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	in, key, err := s.scope(key, false)
	if err != nil {
		return err
	}
	if version, err := s.Versioner().ObjectResourceVersion(obj); err == nil && version != 0 {
		return storage.ErrResourceVersionSetOnCreate
	}
	if err := s.Versioner().PrepareObjectForStorage(obj); err != nil {
		return err
	}
	o, err := s.input(obj, in, &ttl)
	if err != nil {
		return err
	}
	o = o.DeepCopyObject().(PT)
	if _, err := s.put(ctx, o, 0); errors.Is(err, keep.ErrConflict) {
		return storage.NewKeyExistsError(key, 0)
	} else if err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	return s.set(out, o)
}

// input is an object that shall be written with the key of a scope.
func (s *Store[T, PT]) input(obj runtime.Object, in scope, ttl *uint64) (PT, error) {
	o, ok := obj.(PT)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s are of type %T, not %T", s.Resource, o, obj)
	case ttl != nil && *ttl != 0:
		return nil, fmt.Errorf("%s are kept until somebody deletes them: no time to live can be set", s.Resource)
	case in.nothing || in.name != o.GetName() || in.namespace != o.GetNamespace():
		return nil, fmt.Errorf("object %s/%s has the key of %s/%s", o.GetNamespace(), o.GetName(), in.namespace, in.name)
	}
	o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // the client may have named it
	roundTimes(reflect.ValueOf(o).Elem())
	return o, nil
}

// state is an object before a write.
type state[T any, PT Object[T]] struct {
	object  PT // a zero value if there is none
	version int64
	current bool // it is what the keeper has, and not what a cache has
}

// target is what is written.
type target struct {
	scope

	key    string
	orNew  bool // it may be created
	broken bool // it may be none
}

// current reads the state of an object.
func (s *Store[T, PT]) current(ctx context.Context, of target) (state[T, PT], error) {
	item, err := keep.Item[T]{}, keep.ErrNotFound
	if !of.nothing {
		item, err = s.get(ctx, keep.Key{Namespace: of.namespace, Name: of.name})
	}
	switch {
	case errors.Is(err, keep.ErrNotFound) && of.orNew:
		return state[T, PT]{object: new(T), current: true}, nil
	case errors.Is(err, keep.ErrNotFound):
		return state[T, PT]{}, storage.NewKeyNotFoundError(of.key, 0)
	case err != nil:
		return state[T, PT]{}, err
	}
	if item.Broken != nil && !of.broken {
		return state[T, PT]{}, s.broken.answer(keep.Key{Namespace: of.namespace, Name: of.name}, item.Broken)
	}
	o, err := s.object(item)
	return state[T, PT]{object: o, version: item.Version, current: true}, err
}

// change writes an object: it decides on the write with what a cache has, if it has it, and
// decides once more with what the keeper has if that leads to an error or to a conflict. try
// returns a conflict of the keeper, or what the caller is told.
func (s *Store[T, PT]) change(ctx context.Context, of target, cached runtime.Object, try func(*state[T, PT]) error) error {
	var now state[T, PT]
	o, ok := cached.(PT)
	if ok && o != nil {
		version, err := s.Versioner().ObjectResourceVersion(o)
		if err != nil {
			return err
		}
		now = state[T, PT]{object: o, version: int64(version)} //nolint:gosec // it was one
	} else {
		var err error
		if now, err = s.current(ctx, of); err != nil {
			return err
		}
	}
	for {
		before := now
		err := try(&now)
		refused := errors.Is(err, keep.ErrNotFound) || errors.Is(err, keep.ErrConflict)
		if err == nil || before.current && !refused {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		fresh, getErr := s.current(ctx, of)
		switch {
		case getErr != nil:
			return getErr
		case fresh.version == before.version && refused && before.current:
			return s.wrong("it has version %d of %s, and refuses a write of that version: %v", fresh.version, of.key, err)
		case fresh.version == before.version && !refused:
			return err // what the cache has was right
		}
		now = fresh
	}
}

// Delete implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (s *Store[T, PT]) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, _ storage.DeleteOptions,
) error {
	in, key, err := s.scope(key, false)
	if err != nil {
		return err
	}
	return s.change(ctx, target{scope: in, key: key, broken: true}, cached, func(now *state[T, PT]) error {
		if err := preconditions.Check(key, now.object); err != nil {
			return err
		}
		if err := validate(ctx, now.object); err != nil {
			return err
		}
		id := keep.Key{Namespace: in.namespace, Name: in.name}
		version, err := call(ctx, &s.Config, s.slots, false, func(ctx context.Context) (int64, error) {
			return s.keeper.Remove(ctx, id, now.version)
		})
		if _, err = s.written(now.object, version, now.version, err); err != nil {
			return err
		}
		return s.set(out, now.object)
	})
}

// GuaranteedUpdate implements storage.Interface.
//
//nolint:revive // the parameters are storage.Interface's
func (s *Store[T, PT]) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	in, key, err := s.scope(key, false)
	if err != nil {
		return err
	}
	of := target{scope: in, key: key, orNew: ignoreNotFound}
	return s.change(ctx, of, cached, func(now *state[T, PT]) error {
		if err := preconditions.Check(key, now.object); err != nil {
			return err
		}
		before := now.object.DeepCopyObject().(PT)
		version := uint64(now.version) //nolint:gosec // versions are positive
		result, ttl, err := update(now.object, storage.ResponseMeta{ResourceVersion: version})
		if err != nil {
			return err
		}
		if err := s.Versioner().PrepareObjectForStorage(result); err != nil {
			return err
		}
		o, err := s.input(result, in, ttl)
		if err != nil {
			return err
		}
		if same, err := s.same(ctx, of, *now, before, o); same || err != nil {
			if err != nil {
				return err
			}
			return s.set(destination, before)
		}
		if _, err := s.put(ctx, o, now.version); err != nil {
			return err
		}
		return s.set(destination, o)
	})
}

// same tells whether nothing has to be written. What a cache has proves nothing.
func (s *Store[T, PT]) same(ctx context.Context, of target, now state[T, PT], before, o PT) (bool, error) {
	if now.version == 0 {
		return false, nil
	}
	version := before.GetResourceVersion()
	before.SetResourceVersion("")
	same := equality.Semantic.DeepEqual(before, o)
	before.SetResourceVersion(version)
	if !same || now.current {
		return same, nil
	}
	of.orNew = false
	fresh, err := s.current(ctx, of)
	if err == nil && fresh.version != now.version {
		err = keep.ErrConflict
	}
	return true, err
}
