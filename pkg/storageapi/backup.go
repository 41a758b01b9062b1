package storageapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/internal/page"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// The sub-resources, and who may use them: "get" of the first, and "create" of the second.
const (
	backupName  = "backup"
	restoreName = "restore"
)

// backups are the sub-resources that give a backup of one EtcdStorage, and take it. They last.
func (l *lending) backups() []apis.Option {
	return []apis.Option{
		l.connection(backupName, http.MethodGet, l.backup),
		l.connection(restoreName, http.MethodPost, l.restore),
	}
}

// connection is a sub-resource that a function serves, for one method. An error of it is the answer.
func (l *lending) connection(
	name, method string, serve func(http.ResponseWriter, *http.Request, *v1alpha1.EtcdStorage) error,
) apis.Option {
	return apis.Handle(name, func(_ context.Context, s *v1alpha1.EtcdStorage) (http.Handler, error) {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			err := page.OnlyBy(w, r, fmt.Sprintf("%s: use %s", name, method), method)
			if err == nil && r.URL.Path != "/" {
				err = apierrors.NewNotFound(etcdStorages(), s.Name+"/"+name+r.URL.Path)
			}
			if err == nil {
				err = serve(w, r, s)
			}
			if err != nil {
				page.Refuse(w, r, err)
			}
		}), nil
	})
}

func etcdStorages() schema.GroupResource {
	return v1alpha1.SchemeGroupVersion().WithResource("etcdstorages").GroupResource()
}

// conflict is the answer to a request that comes when it must not.
func conflict(name, why string) error {
	return apierrors.NewConflict(etcdStorages(), name, errors.New(why))
}

// has returns the storage that has the data of an EtcdStorage.
func (l *lending) has(s *v1alpha1.EtcdStorage) (*store, error) {
	at := l.tenants.store(s.Status.Storage)
	switch {
	case at != nil:
		return at, nil
	case s.Status.Storage == "":
		return nil, conflict(s.Name, "it has no storage yet: wait until it is ready")
	case l.tenants.store(ownStorage) == nil:
		return nil, apierrors.NewServiceUnavailable("the server is starting")
	}
	return nil, conflict(s.Name, fmt.Sprintf("the operator of the server names no storage %q any more", s.Status.Storage))
}

// get reads an EtcdStorage as it is now.
func (l *lending) get(ctx context.Context, name string) (*v1alpha1.EtcdStorage, error) {
	s := &v1alpha1.EtcdStorage{}
	return s, l.client.Get().Resource("etcdstorages").Name(name).Do(ctx).Into(s)
}

// backup answers a request with a backup of an EtcdStorage.
func (l *lending) backup(w http.ResponseWriter, r *http.Request, s *v1alpha1.EtcdStorage) error {
	ctx := r.Context()
	at, err := l.has(s)
	if err != nil {
		return err
	}
	p, err := at.past(ctx, s.Name)
	if err != nil {
		return err
	}
	// The data was still there at that revision, unless it has moved since the object was read.
	now, err := l.get(ctx, s.Name)
	switch {
	case err != nil:
		return err
	case p.Restoring || isRestoring(now):
		return conflict(s.Name, "its data is not complete: a restore has not ended, or was interrupted")
	case now.UID != s.UID || now.Status.Storage != s.Status.Storage:
		return conflict(s.Name, "it has just moved to another storage: try again")
	}
	_, err = backup.Send(w, r, func(to io.Writer) (backup.Info, error) { return at.lent(s.Name, p).Write(ctx, p.now, to) })
	return err
}

// lent is a tenant's part of the storage.
func (s *store) lent(name string, p past) backup.Lent {
	return backup.Lent{Name: name, Engine: s.engine, Client: s.client, Root: s.root(name), Offset: p.Offset}
}
