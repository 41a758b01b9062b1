package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/format"
	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
)

// ShareFunc gives a part what servers have in common. The context is that of the start; the
// values may be used as long as the server lives.
type ShareFunc func(ctx context.Context, s *Shared) error

// Shared are values that the servers on one storage have in common. They are no objects: the
// API does not show them.
type Shared struct {
	client *clientv3.Client
	prefix string
}

func (s *Shared) key(name string) string { return keys.Space{Prefix: s.prefix}.Shared(name) }

// Get returns a value and its revision, which is 0 if there is none.
func (s *Shared) Get(ctx context.Context, name string) (value []byte, revision int64, err error) {
	r, err := s.client.Get(ctx, s.key(name))
	if err != nil || len(r.Kvs) == 0 {
		return nil, 0, err
	}
	return r.Kvs[0].Value, r.Kvs[0].ModRevision, nil
}

// Put replaces a value if it still has a revision; 0: if there is none. It returns false if
// another server was faster.
func (s *Shared) Put(ctx context.Context, name string, value []byte, revision int64) (bool, error) {
	key := s.key(name)
	r, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).
		Then(clientv3.OpPut(key, string(value))).
		Commit()
	if err != nil {
		return false, err
	}
	return r.Succeeded, nil
}

// sharedRetry is the pause before a value is watched again.
const sharedRetry = time.Second

// Follow calls something whenever a value may have changed, until the context ends.
func (s *Shared) Follow(ctx context.Context, name string, something func()) {
	for ctx.Err() == nil {
		err := s.watch(ctx, name, something)
		if ctx.Err() != nil {
			return
		}
		klog.FromContext(ctx).V(2).Info("Cannot follow what servers share; will retry", "name", name, "cause", err)
		select {
		case <-time.After(sharedRetry):
		case <-ctx.Done():
		}
	}
}

func (s *Shared) watch(ctx context.Context, name string, something func()) error {
	_, revision, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	something()
	ctx, cancel := context.WithCancel(ctx) // ends the watch
	defer cancel()
	for r := range s.client.Watch(ctx, s.key(name), clientv3.WithRev(revision+1)) {
		if err := r.Err(); err != nil {
			return err
		}
		something()
	}
	return nil
}

// own keeps servers of another name from the objects of this one: they would take each other for
// replicas.
func (r *run) own(ctx context.Context, s *Shared) error {
	name := r.server.built.name
	for {
		owner, revision, err := s.Get(ctx, "owner")
		switch {
		case err != nil:
			return fmt.Errorf("storage: read whose it is: %w", err)
		case revision > 0 && string(owner) == name:
			return nil
		case revision > 0:
			return fmt.Errorf("storage: below %s are objects of the server %q, and this one is %q: give it a prefix of its own, "+
				"or the same name if it is a replica", s.prefix, owner, name)
		}
		if _, err := s.Put(ctx, "owner", []byte(name), 0); err != nil {
			return fmt.Errorf("storage: note whose it is: %w", err)
		}
	}
}

// known keeps a server from a storage with another format than it knows, or that is being filled by a copy
// or a restore; and names the format of one that has none. It returns the revision of the name.
func (r *run) known(ctx context.Context, s *Shared) (int64, error) {
	for {
		value, revision, err := s.Get(ctx, format.Name)
		if err != nil {
			return 0, fmt.Errorf("storage: read the format of what is stored: %w", err)
		}
		stamp, err := format.Parse(value)
		if err == nil {
			err = stamp.Check()
		}
		if err != nil {
			return 0, fmt.Errorf("storage: %w", err)
		}
		if revision > 0 {
			return revision, nil
		}
		if _, err := s.Put(ctx, format.Name, stamp.Bytes(), 0); err != nil {
			return 0, fmt.Errorf("storage: name the format of what is stored: %w", err)
		}
	}
}

// errFilled is why a server ends whose storage has something else now.
var errFilled = errors.New("storage: it was filled with a copy or a backup while this server was running: " +
	"start it again when that is complete")

// guard ends a server on a shared storage when somebody fills that with something else: the name of the format
// is written then, and at no other time after it had a revision.
func (r *run) guard(ctx context.Context, s *Shared, known int64) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx)) // until the server stops
	watched := background(func() {
		s.Follow(ctx, format.Name, func() {
			if _, revision, err := s.Get(ctx, format.Name); err == nil && revision != known {
				r.fail(errFilled)
			}
		})
	})
	r.onStop(func(context.Context) error {
		cancel()
		<-watched
		return nil
	})
}

// share calls those who keep something in common.
func (r *run) share(ctx context.Context, plan *ServerPlan, o *openStorage) error {
	s := o.shared()
	known, err := r.known(ctx, s)
	if err != nil {
		return err
	}
	// Those of kine, which write one key at a time, may lose what they compact without a word.
	if r.server.built.storage.Traits().MaxOps > 1 {
		o.backend.Since = known
	}
	if o.backend.Shared {
		if err := r.own(ctx, s); err != nil {
			return err
		}
		r.guard(ctx, s, known)
	}
	for _, one := range plan.shared {
		if err := one.value(ctx, s); err != nil {
			return one.failed(err)
		}
	}
	return nil
}
