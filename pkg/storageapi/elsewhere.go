package storageapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientretry "k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// askTime is how long another storage has to say that it is there.
const askTime = 10 * time.Second

// brought is known of data that a backup of the whole server has brought to the server's own storage from another one,
// until it moves again.
type brought struct {
	// UID is that of the EtcdStorage, whose status.storage names the other storage at first.
	UID types.UID `json:"uid"`
	// Revision is the newest that its clients had seen there when it was Taken. It is 0 as soon as their revisions go on
	// above it.
	Revision int64     `json:"revision,omitempty"`
	Taken    time.Time `json:"taken,omitzero"`
}

// isElsewhere tells whether the data is in another storage than the server's own.
func isElsewhere(s *v1alpha1.EtcdStorage) bool {
	return s.Status.Storage != "" && s.Status.Storage != ownStorage
}

func (l *lending) list(ctx context.Context, o metav1.ListOptions) (all v1alpha1.EtcdStorageList, err error) {
	err = l.client.Get().Resource("etcdstorages").VersionedParams(&o, metav1.ParameterCodec).Do(ctx).Into(&all)
	return all, err
}

// elsewhere is what a backup of the server has from other storages.
func (l *lending) elsewhere(ctx context.Context, revision int64) (parts []controlplane.Elsewhere, err error) {
	if l.tenants.store(ownStorage) == nil {
		return nil, errors.New("the server is starting")
	}
	then, err := l.list(ctx, metav1.ListOptions{
		ResourceVersion: strconv.FormatInt(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil {
		return nil, fmt.Errorf("list EtcdStorages at revision %d: %w", revision, err)
	}
	for _, s := range then.Items {
		if !isElsewhere(&s) {
			continue
		}
		part, err := l.tenants.elsewhere(ctx, &s)
		if err != nil {
			return nil, fmt.Errorf("EtcdStorage %q: %w", s.Name, err)
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return nil, nil
	}
	// The data was still there, unless it has moved since the revision.
	now, err := l.list(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list EtcdStorages: %w", err)
	}
	for _, s := range then.Items {
		stayed := slices.ContainsFunc(now.Items, func(n v1alpha1.EtcdStorage) bool {
			return n.UID == s.UID && n.Status.Storage == s.Status.Storage
		})
		if isElsewhere(&s) && !stayed {
			return nil, fmt.Errorf("EtcdStorage %q: its data has just moved to another storage, or was deleted: try again", s.Name)
		}
	}
	return parts, nil
}

// elsewhere is what a backup of the server has of a tenant whose data is in another storage.
func (ts *tenants) elsewhere(ctx context.Context, s *v1alpha1.EtcdStorage) (e controlplane.Elsewhere, err error) {
	at := ts.store(s.Status.Storage)
	if at == nil {
		return e, fmt.Errorf("its data is in storage %q, which the operator of the server names no more: name it again "+
			"(storageAPI.storages), or delete the EtcdStorage with spec.keepData", s.Status.Storage)
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	p, err := at.past(ctx, s.Name)
	switch {
	case err != nil:
		return e, fmt.Errorf("storage %q, which has its data, cannot be read: %w: take a backup when it can", s.Status.Storage, err)
	case p.Restoring && !isRestoring(s):
		return e, errors.New("a restore has just begun to replace its data: try again")
	}
	value, err := json.Marshal(past{
		Restoring: p.Restoring, Brought: &brought{UID: s.UID, Revision: p.now + p.Offset, Taken: time.Now().UTC()},
	})
	return controlplane.Elsewhere{
		Name:   fmt.Sprintf("EtcdStorage %q in storage %q", s.Name, s.Status.Storage),
		Client: at.client, Revision: p.now, Root: at.root(s.Name), Key: at.state(s.Name), Value: value,
	}, err
}

// arrive has every EtcdStorage know that its data is in the server's own storage now, if a backup of the server has
// brought it there. No tenant is served before.
func (l *lending) arrive(ctx context.Context) error {
	all, err := l.list(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list EtcdStorages: %w", err)
	}
	for _, s := range all.Items {
		if !isElsewhere(&s) {
			continue
		}
		err := clientretry.RetryOnConflict(clientretry.DefaultBackoff, func() error { return l.arriveOne(ctx, s.Name) })
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("EtcdStorage %q: take over its data from a backup of the server: %w", s.Name, err)
		}
	}
	return nil
}

// arriveOne does so for one. Another server may do the same: what it has done is found, or is a conflict.
func (l *lending) arriveOne(ctx context.Context, name string) error {
	s, err := l.get(ctx, name)
	if err != nil || !isElsewhere(s) {
		return err
	}
	own := l.tenants.store(ownStorage)
	p, err := own.past(ctx, name) // after the object: what is brought moves on only when that is known no more
	if err != nil || p.Brought == nil || p.Brought.UID != s.UID {
		return err
	}
	if p.Brought.Revision != 0 {
		err := own.raise(ctx, name, p, backup.Seen(p.Brought.Revision, p.Brought.Taken))
		if errors.Is(err, backup.ErrOvertaken) {
			return apierrors.NewConflict(etcdStorages(), name, err) // by another server
		}
		if err != nil {
			return err
		}
	}
	from := s.Status.Storage
	// What is there is of another time than the backup: it goes, as after a move.
	s.Status.Storage, s.Status.PreviousStorage = ownStorage, ""
	if l.tenants.store(from) != nil {
		s.Status.PreviousStorage = from
	}
	if err := l.client.Put().Resource("etcdstorages").Name(name).SubResource("status").Body(s).Do(ctx).Error(); err != nil {
		return err
	}
	klog.FromContext(ctx).Info("The data of an EtcdStorage is in the server's own storage, as a backup of the server was restored",
		"name", name, "from", from)
	return nil
}

// raise has a tenant's revisions go on above one, also those of all its keys, and its history begin.
func (s *store) raise(ctx context.Context, name string, p past, above int64) error {
	n, err := s.newest(ctx, name)
	if err != nil {
		return err
	}
	p.Offset, p.Since = max(0, above+1-cmp.Or(n.oldest, p.now+1)), p.now+1 // what is written next
	return s.bring(ctx, name, p, &brought{UID: p.Brought.UID})
}

// bring notes how a tenant's data came here; nil, before it moves on: status.storage may name the other storage again then.
func (s *store) bring(ctx context.Context, name string, p past, b *brought) error {
	p.Brought = b
	_, err := s.note(ctx, name, p, clientv3.Compare(clientv3.ModRevision(s.state(name)), "=", p.modified))
	return err
}
