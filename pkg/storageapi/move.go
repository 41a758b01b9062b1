package storageapi

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const (
	// copyKeys and copyBytes are how much one write of a copy has.
	copyKeys, copyBytes = 100, 1 << 20
	// progressEvery is how many keys are copied before the condition says so.
	progressEvery = 5000
)

// past is what a tenant's revisions were before its data came to a storage. It is kept
// beside the data.
type past struct {
	// Offset is added to the revisions of the storage, so that the tenant's go on.
	Offset int64 `json:"offset"`
	// Since is the revision of the storage from which on there is history.
	Since int64 `json:"since"`
	// Restoring: the data is not complete, a restore has begun to replace it.
	Restoring bool `json:"restoring,omitempty"`
	// Brought: a backup of the whole server has brought the data here.
	Brought *brought `json:"brought,omitempty"`

	// modified is the revision in which this was written, 0 if it never was, and now that of the storage.
	modified, now int64
}

// past reads what a storage knows of a tenant's revisions; nothing, if the data was there
// from the beginning.
func (s *store) past(ctx context.Context, name string) (p past, err error) {
	at := s.state(name)
	r, err := s.client.Get(ctx, at)
	if err != nil {
		return p, err
	}
	p.now = r.Header.GetRevision()
	if len(r.Kvs) == 0 {
		return p, nil
	}
	p.modified = r.Kvs[0].ModRevision
	if err := json.Unmarshal(r.Kvs[0].Value, &p); err != nil {
		return p, fmt.Errorf("%s: %w", at, err)
	}
	// A whole storage may have been restored to one that counts from less.
	p.Since = min(p.Since, p.now)
	return p, nil
}

// isClosed tells whether data is on its way: nobody may write meanwhile.
func isClosed(s *v1alpha1.EtcdStorage) bool { return isMoving(s) || isRestoring(s) }

func isMoving(s *v1alpha1.EtcdStorage) bool { return isReadyFor(s, v1alpha1.ReasonMoving) }

// isReadyFor tells whether a reason is why an EtcdStorage is ready, or not.
func isReadyFor(s *v1alpha1.EtcdStorage, reason string) bool {
	ready := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	return ready != nil && ready.Reason == reason
}

// move has the data of a tenant in another storage, and tells whether it is there. It begins
// anew if it was interrupted: until the end, status.storage is where the data is, and
// status.previousStorage where a part of it may be.
func (c *controller) move(ctx context.Context, s *v1alpha1.EtcdStorage, to string) (moved bool, err error) {
	if !isMoving(s) || s.Status.PreviousStorage != to {
		if s.Status.PreviousStorage != to {
			if err := c.tidy(ctx, s); err != nil {
				return false, err
			}
			s.Status.PreviousStorage = to
		}
		c.resume(s.Name) // it may have moved before
		// Every server ends the connections when it sees this. Its event comes here again.
		return false, c.report(ctx, s, moving(s, to, 0))
	}
	if rest := c.pause(s.Name); rest > 0 {
		c.queue.AddAfter(s.Name, rest)
		return false, nil
	}
	from, target := c.tenants.store(s.Status.Storage), c.tenants.store(to)
	before, err := from.past(ctx, s.Name)
	if err == nil && before.Brought != nil {
		err = from.bring(ctx, s.Name, before, nil)
	}
	if err != nil {
		return false, err
	}
	for last := (newest{keys: -1}); ; {
		now, err := from.newest(ctx, s.Name)
		if err != nil {
			return false, err
		}
		if now.keys == last.keys && now.key == last.key { // nothing was written since the copy began
			break
		}
		last = now
		if _, err := target.empty(ctx, s.Name); err != nil {
			return false, err
		}
		begun, err := target.revision(ctx, s.Name)
		if err != nil {
			return false, err
		}
		n, err := from.copy(ctx, target, s.Name, func(n int) {
			_ = c.report(ctx, s, moving(s, to, n)) // the next one tells more
		})
		if err != nil {
			return false, fmt.Errorf("copy the data to storage %q: %w", to, err)
		}
		// What is copied is newer than all that the tenant has seen.
		if err := target.follow(ctx, s.Name, max(0, before.Offset+now.storage-begun)); err != nil {
			return false, err
		}
		klog.FromContext(ctx).V(1).Info("Copied the data of an EtcdStorage", "name", s.Name, "from", s.Status.Storage, "to", to, "keys", n)
	}
	s.Status.PreviousStorage, s.Status.Storage = s.Status.Storage, to
	return true, nil
}

// pause returns how long it is until every server has ended the connections of a tenant
// that moves.
func (c *controller) pause(name string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused[name].IsZero() {
		c.paused[name] = time.Now()
	}
	return settled - time.Since(c.paused[name])
}

// resume has the next move of a tenant wait again.
func (c *controller) resume(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.paused, name)
}

// tidy deletes what a move has left: what was moved, or the copy if it was given up.
func (c *controller) tidy(ctx context.Context, s *v1alpha1.EtcdStorage) error {
	c.resume(s.Name)
	old := c.tenants.store(s.Status.PreviousStorage)
	if old == nil {
		return nil
	}
	if _, err := old.empty(ctx, s.Name); err != nil {
		return fmt.Errorf("delete the data that was moved: %w", err)
	}
	s.Status.PreviousStorage = ""
	return nil
}

func moving(s *v1alpha1.EtcdStorage, to string, keys int) metav1.Condition {
	return metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMoving, ObservedGeneration: s.Generation,
		Message: fmt.Sprintf("the data is moving to storage %q, %d keys so far; its API server waits", to, keys),
	}
}

// newest are the last revision of a storage, those of the last write of a tenant there and of its oldest key, 0 if there
// is none, and how many keys it has.
type newest struct{ storage, key, oldest, keys int64 }

func (s *store) newest(ctx context.Context, name string) (n newest, err error) {
	err = s.each(ctx, name, []clientv3.OpOption{clientv3.WithKeysOnly()}, func(at int64, page []*mvccpb.KeyValue) error {
		n.storage = max(n.storage, at)
		n.keys += int64(len(page))
		for _, kv := range page {
			n.key = max(n.key, kv.ModRevision)
			n.oldest = min(cmp.Or(n.oldest, kv.ModRevision), kv.ModRevision)
		}
		return nil
	})
	return n, err
}

// each calls a function with all keys of a tenant, page by page, and the revision of the storage.
func (s *store) each(ctx context.Context, name string, options []clientv3.OpOption, f func(at int64, page []*mvccpb.KeyValue) error) error {
	root := s.root(name)
	end := clientv3.GetPrefixRangeEnd(root)
	options = append(options, clientv3.WithRange(end), clientv3.WithLimit(copyKeys))
	for from := root; ; {
		page, err := s.client.Get(ctx, from, options...)
		if err != nil {
			return err
		}
		if err := f(page.Header.GetRevision(), page.Kvs); err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// copying is the copy of a tenant's keys from one storage to another.
type copying struct {
	from, to *store
	name     string
	leases   map[int64]clientv3.LeaseID // there, by those here
	puts     []clientv3.Op
	bytes    int
	keys     int
}

// copy copies the keys of a tenant, with what is left of their leases, and returns how many there were.
func (s *store) copy(ctx context.Context, to *store, name string, progress func(n int)) (int, error) {
	c := &copying{from: s, to: to, name: name, leases: map[int64]clientv3.LeaseID{}}
	err := s.each(ctx, name, nil, func(_ int64, page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			if err := c.add(ctx, kv); err != nil {
				return err
			}
		}
		if c.keys/progressEvery != (c.keys-len(page))/progressEvery {
			progress(c.keys)
		}
		return c.flush(ctx)
	})
	return c.keys, err
}

// add writes a key with others.
func (c *copying) add(ctx context.Context, kv *mvccpb.KeyValue) error {
	c.keys++
	lease, ended, err := c.lease(ctx, kv.Lease)
	if err != nil || ended {
		return err
	}
	size := len(kv.Key) + len(kv.Value)
	if c.bytes+size > copyBytes {
		if err := c.flush(ctx); err != nil {
			return err
		}
	}
	c.bytes += size
	key := c.to.root(c.name) + string(kv.Key[len(c.from.root(c.name)):])
	c.puts = append(c.puts, clientv3.OpPut(key, string(kv.Value), clientv3.WithLease(lease)))
	return nil
}

func (c *copying) flush(ctx context.Context) error {
	if len(c.puts) == 0 {
		return nil
	}
	_, err := c.to.client.Txn(ctx).Then(c.puts...).Commit()
	c.puts, c.bytes = nil, 0
	return err
}

// lease returns a lease there that ends as one here does, or that it has ended.
func (c *copying) lease(ctx context.Context, id int64) (lease clientv3.LeaseID, ended bool, err error) {
	if lease, ok := c.leases[id]; ok || id == 0 {
		return lease, false, nil
	}
	left, err := c.from.client.TimeToLive(ctx, clientv3.LeaseID(id))
	if err != nil {
		return 0, false, err
	}
	if left.TTL <= 0 {
		return 0, true, nil
	}
	granted, err := c.to.client.Grant(ctx, left.TTL+1) // what is left is rounded down, and nothing ends early
	if err != nil {
		return 0, false, err
	}
	c.leases[id] = granted.ID
	return granted.ID, false, nil
}

// revision is the last one of the storage.
func (s *store) revision(ctx context.Context, name string) (int64, error) {
	r, err := s.client.Get(ctx, s.state(name))
	if err != nil {
		return 0, err
	}
	return r.Header.GetRevision(), nil
}

// follow notes what is added to a tenant's revisions here, and that its history begins now.
func (s *store) follow(ctx context.Context, name string, offset int64) error {
	now, err := s.revision(ctx, name)
	if err != nil {
		return err
	}
	value, err := json.Marshal(past{Offset: offset, Since: now + 1}) // what is written next
	if err != nil {
		return err
	}
	_, err = s.client.Put(ctx, s.state(name), string(value))
	return err
}

// empty deletes all keys of a tenant and what is known of it, and returns how many keys there were.
func (s *store) empty(ctx context.Context, name string) (n int, err error) {
	root := s.root(name)
	for {
		page, err := s.client.Get(ctx, root, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(eraseAtOnce))
		if err != nil {
			return n, err
		}
		if len(page.Kvs) == 0 {
			_, err := s.client.Delete(ctx, s.state(name))
			return n, err
		}
		last := string(page.Kvs[len(page.Kvs)-1].Key)
		deleted, err := s.client.Delete(ctx, root, clientv3.WithRange(last+"\x00"))
		if err != nil {
			return n, err
		}
		n += int(deleted.Deleted)
	}
}
