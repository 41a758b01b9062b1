package storageapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientretry "k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const (
	// keyRoom and fileRoom are how much larger a backup may be than what is in it: for each key, and at all.
	keyRoom, fileRoom = 32, 16 << 20
	// tellTime is how long a restore that failed may take to say so.
	tellTime = 10 * time.Second
)

// Restored is the answer to a backup that was restored to an EtcdStorage.
type Restored struct {
	// Taken is when the backup was taken, and EtcdStorage the name of the one that it was taken of.
	Taken       time.Time `json:"taken"`
	EtcdStorage string    `json:"etcdStorage"`
	// Keys and Bytes are what the EtcdStorage has now, and Expired the keys of the backup that have expired
	// since it was taken.
	Keys    int64 `json:"keys"`
	Bytes   int64 `json:"bytes"`
	Expired int64 `json:"expired"`
	// Revision is the newest that clients see. It is larger than all that they have seen.
	Revision int64 `json:"revision"`
}

// alone has one restore of each EtcdStorage run in this server. Where servers share a storage, one that begins ends that
// of another server.
type alone struct {
	mu      sync.Mutex
	running map[string]struct{}
}

// enter returns false if there is one already.
func (a *alone) enter(name string) (leave func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.running[name]; ok {
		return nil, false
	}
	if a.running == nil {
		a.running = map[string]struct{}{}
	}
	a.running[name] = struct{}{}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.running, name)
	}, true
}

// isRestoring tells whether the data is being replaced, or was in part.
func isRestoring(s *v1alpha1.EtcdStorage) bool { return isReadyFor(s, v1alpha1.ReasonRestoring) }

// restore replaces the data of an EtcdStorage by that of the backup in a request. Nothing is changed unless all of that
// can be read.
func (l *lending) restore(w http.ResponseWriter, r *http.Request, s *v1alpha1.EtcdStorage) error {
	ctx := r.Context()
	if err := mayRestore(s); err != nil {
		return err
	}
	at, err := l.has(s)
	if err != nil {
		return err
	}
	u := &restoring{lending: l, name: s.Name, uid: s.UID, at: at}
	if u.file, err = os.CreateTemp(l.part.TemporaryDir, "sailplane-restore-"); err != nil {
		return noRoom(err)
	}
	defer u.file.Close()
	if err := os.Remove(u.file.Name()); err != nil { // it lasts as long as it is open
		return noRoom(err)
	}
	if err := u.receive(ctx, r.Body, l.tenants.max.of(s.Spec.Limits)); err != nil {
		return err
	}
	leave, ok := l.restores.enter(s.Name)
	if !ok {
		return conflict(s.Name, "another restore of it is running")
	}
	defer leave()
	done, err := u.run(ctx)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Restored the data of an EtcdStorage", "name", s.Name, "keys", done.Keys, "revision", done.Revision)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(done) // the client has gone if it fails
	return nil
}

// mayRestore returns why the data of an EtcdStorage cannot be replaced now.
func mayRestore(s *v1alpha1.EtcdStorage) error {
	switch {
	case s.DeletionTimestamp != nil:
		return conflict(s.Name, "it is being deleted")
	case isMoving(s):
		return conflict(s.Name, "its data is moving to another storage: wait until it is there")
	}
	return nil
}

func noRoom(err error) error {
	return fmt.Errorf("keep the backup while it is checked: %w: give the server room there, or have "+
		"storageapi.EtcdStorages.TemporaryDir or TMPDIR name another directory", err)
}

// restoring is a restore of an EtcdStorage.
type restoring struct {
	*lending
	name string
	uid  types.UID
	at   *store
	file *os.File // the backup

	info  backup.Info
	above int64 // all that clients have seen, as far as the backup knows
}

// receive keeps the backup, and checks it.
func (u *restoring) receive(ctx context.Context, from io.Reader, most Limits) (err error) {
	kept := &keeping{file: u.file, most: most.Bytes + keyRoom*most.Keys + fileRoom}
	through := io.TeeReader(from, kept)
	u.info, u.above, err = backup.ReadLent(ctx, through, backup.LentLimits{
		Keys: most.Keys, Bytes: most.Bytes, ValueBytes: most.ValueBytes,
	})
	if err == nil {
		_, err = io.Copy(io.Discard, through) // nothing, or what is no part of it
	}
	if kept.err != nil {
		err = kept.err // the reader may have taken it for the end
	}
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(*backup.TooMuchError)):
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	case kept.err != nil:
		return noRoom(err)
	}
	return apierrors.NewBadRequest(err.Error())
}

// keeping writes a file that is not too long, and remembers why it could not.
type keeping struct {
	file    *os.File
	n, most int64
	err     error
}

// Write implements io.Writer.
func (k *keeping) Write(b []byte) (n int, err error) {
	if k.n += int64(len(b)); k.n > k.most {
		k.err = &backup.TooMuchError{What: fmt.Sprintf("%d bytes or more as a file", k.n), Most: k.most}
		return 0, k.err
	}
	if n, err = k.file.Write(b); err != nil {
		k.err = err
	}
	return n, err
}

// run has everybody leave, replaces the data, and lets them in again.
func (u *restoring) run(ctx context.Context) (done Restored, err error) {
	if err := u.update(ctx, func(s *v1alpha1.EtcdStorage) error {
		if err := mayRestore(s); err != nil {
			return err
		}
		u.set(s, u.progress(0))
		return nil
	}); err != nil {
		return done, err
	}
	if done, err = u.replace(ctx); err == nil {
		err = u.update(ctx, func(s *v1alpha1.EtcdStorage) error {
			now := metav1.Now()
			s.Status.RestoredAt, s.Status.Used = &now, &v1alpha1.EtcdStorageUsage{Keys: done.Keys, Bytes: done.Bytes}
			meta.RemoveStatusCondition(&s.Status.Conditions, v1alpha1.ConditionReady) // the controller knows
			return nil
		})
	}
	if errors.Is(err, backup.ErrOvertaken) {
		return done, conflict(u.name, "another restore of it has begun, or it was deleted")
	}
	if err != nil {
		u.interrupted(ctx, err)
		return done, err
	}
	return done, nil
}

// progress says how far it is.
func (u *restoring) progress(keys int64) string {
	return fmt.Sprintf("the data is replaced by that of the backup of %s, %d keys so far; its API server waits. "+
		"If nobody restores it any more, run the same command again", u.info.Taken.Format(time.RFC3339), keys)
}

func (u *restoring) set(s *v1alpha1.EtcdStorage, message string) {
	meta.SetStatusCondition(&s.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRestoring, Message: message,
		ObservedGeneration: s.Generation,
	})
}

// update changes the status of the EtcdStorage, as it is when that is written.
func (u *restoring) update(ctx context.Context, change func(*v1alpha1.EtcdStorage) error) error {
	return clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error {
		s, err := u.get(ctx, u.name)
		switch {
		case err != nil:
			return err
		case s.UID != u.uid:
			return conflict(s.Name, "it was deleted, and another one of the name was made")
		}
		if err := change(s); err != nil {
			return err
		}
		return u.client.Put().Resource("etcdstorages").Name(u.name).SubResource("status").Body(s).Do(ctx).Error()
	})
}

// replace replaces the data when every server has ended the connections of its clients.
func (u *restoring) replace(ctx context.Context) (done Restored, err error) {
	rest := time.NewTimer(settled)
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
		return done, context.Cause(ctx)
	}
	s, err := u.get(ctx, u.name)
	switch {
	case err != nil:
		return done, err
	case s.UID != u.uid || s.DeletionTimestamp != nil || !isRestoring(s):
		return done, backup.ErrOvertaken
	}
	p, mine, err := u.at.take(ctx, u.name, u.above)
	if err != nil {
		return done, err
	}
	filled, err := u.at.lent(u.name, p).Fill(ctx, u.file, mine, func(n int64) {
		if n%progressEvery == 0 {
			_ = u.update(ctx, func(s *v1alpha1.EtcdStorage) error { // the next one tells more
				u.set(s, u.progress(n))
				return nil
			})
		}
	})
	if err != nil {
		return done, err
	}
	done = Restored{
		Taken: u.info.Taken, EtcdStorage: u.info.EtcdStorage, Keys: filled.Keys, Bytes: filled.Bytes, Expired: filled.Expired,
	}
	done.Revision, err = u.at.complete(ctx, u.name, p, mine)
	return done, err
}

// interrupted says why the data was not replaced. If none of it was, clients are let in again.
func (u *restoring) interrupted(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTime)
	defer cancel()
	p, err := u.at.past(ctx, u.name)
	if err == nil {
		err = u.update(ctx, func(s *v1alpha1.EtcdStorage) error {
			if !p.Restoring {
				meta.RemoveStatusCondition(&s.Status.Conditions, v1alpha1.ConditionReady)
				return nil
			}
			u.set(s, fmt.Sprintf("the data is not complete, and its API server waits: the restore of the backup of %s ended with: %v; "+
				"run the same command again", u.info.Taken.Format(time.RFC3339), why))
			return nil
		})
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "Could not tell that a restore of an EtcdStorage has ended", "name", u.name, "cause", why)
	}
}

// take notes that a tenant's data is not complete, and that its revisions go on above one. A write that is to be that of
// the caller alone has the condition that it returns.
func (s *store) take(ctx context.Context, name string, above int64) (p past, mine clientv3.Cmp, err error) {
	if p, err = s.past(ctx, name); err != nil {
		return p, mine, err
	}
	p.Offset, p.Restoring = max(p.Offset, above-p.now), true
	unchanged := clientv3.Compare(clientv3.ModRevision(s.state(name)), "=", p.modified)
	// A storage that takes no transactions of several writes refuses this one, before anything was changed: no
	// client can write the key that is deleted.
	at, err := s.note(ctx, name, p, unchanged, clientv3.OpDelete(s.root(name)))
	return p, clientv3.Compare(clientv3.ModRevision(s.state(name)), "=", at), err
}

// complete notes that a tenant's data is complete, and has its history begin. It returns the tenant's revision.
func (s *store) complete(ctx context.Context, name string, p past, mine clientv3.Cmp) (int64, error) {
	now, err := s.revision(ctx, name)
	if err != nil {
		return 0, err
	}
	p.Since, p.Restoring = now+1, false // what is written next
	at, err := s.note(ctx, name, p, mine)
	return at + p.Offset, err
}

// note writes what is known of a tenant with something more, while a condition holds, and returns the revision of the
// storage.
func (s *store) note(ctx context.Context, name string, p past, while clientv3.Cmp, more ...clientv3.Op) (int64, error) {
	value, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	r, err := s.client.Txn(ctx).If(while).Then(append(more, clientv3.OpPut(s.state(name), string(value)))...).Commit()
	if err == nil && !r.Succeeded {
		err = backup.ErrOvertaken
	}
	if err != nil {
		return 0, err
	}
	return r.Header.GetRevision(), nil
}
