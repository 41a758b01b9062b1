// Package sharing has servers on one storage know each other's users: they have one certificate
// authority, one administrator and the same keys for tokens.
package sharing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/seal"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// Files keeps files of a folder in the storage, sealed with a key that the storage does not have,
// and has them the same in the folders of all servers: the certificate authority and its key, the
// administrator's certificate, the lists of revoked and issued certificates (see authn.Admin),
// and the key of service account tokens (see serviceaccount.Tokens). Serving certificates
// are each server's own.
//
// A server that starts takes what the storage has. A file that changes on one server, as by
// "sailplane pki revoke", is changed on the others within seconds. Pick it where Traits of the
// storage say Shared.
type Files struct {
	// Dir is the folder of authn.Admin and serviceaccount.Tokens. Required.
	Dir string
	// ProxyDir is the folder of the identity by which aggregated servers know this one (see
	// aggregator.APIServices). Empty: none is shared.
	ProxyDir string
	// KeyFile has the key that seals: a line of 32 random characters or more, as `openssl rand
	// -hex 32` writes it. All servers need the same. Further lines open what they have sealed:
	// to change the key, put the new one first on all servers, restart them, and remove the
	// old one. Only its owner and group may have permissions on it. Required.
	KeyFile string
}

// PartName implements the name errors use.
func (Files) PartName() string { return "sharing.Files" }

// Install implements controlplane.Part.
func (Files) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the work.
func (f Files) InstallServer(p *controlplane.ServerPlan) error {
	if f.Dir == "" || f.KeyFile == "" {
		return errors.New("fields Dir and KeyFile are required")
	}
	mirrors := []*mirror{{name: "files", folder: folder{f.Dir, true}}}
	if f.ProxyDir != "" {
		mirrors = append(mirrors, &mirror{name: "proxy-files", folder: folder{f.ProxyDir, false}})
	}
	for _, m := range mirrors {
		p.Root().Read(func() (err error) {
			if m.seals, err = seal.Read(f.KeyFile); err != nil {
				return fmt.Errorf("field KeyFile: %w", err)
			}
			return nil
		})
		p.Share(m.name, func(ctx context.Context, s *controlplane.Shared) error {
			m.shared = s
			return m.start(ctx)
		})
		p.Work(controlplane.Work{Name: "shared " + m.name, Run: m.follow})
	}
	return nil
}

// mirror has a folder and a value in the storage follow each other. Only one goroutine uses it.
type mirror struct {
	name   string // of the value
	folder folder
	seals  seal.Keys
	shared *controlplane.Shared
}

// start takes what the storage has, and without that makes what servers have in common.
func (m *mirror) start(ctx context.Context) error {
	_, revision, err := m.shared.Get(ctx, m.name)
	if err != nil {
		return err
	}
	if revision > 0 {
		return m.sync(ctx)
	}
	if err := m.folder.make(ctx); err != nil {
		return err
	}
	return m.sync(ctx)
}

// sync makes the folder and the storage the same.
func (m *mirror) sync(ctx context.Context) error {
	for {
		done, err := m.try(ctx)
		if done || err != nil {
			return err
		}
	}
}

// try returns false if another server was faster.
func (m *mirror) try(ctx context.Context) (done bool, err error) {
	stored, revision, err := m.shared.Get(ctx, m.name)
	if err != nil {
		return false, err
	}
	theirs, sealed := map[string][]byte{}, false
	if revision > 0 {
		if theirs, sealed, err = m.seals.Open(stored); err != nil {
			return false, err
		}
	}
	err = m.folder.change(ctx, func(ours *content) (map[string][]byte, error) {
		merged, err := ours.merge(theirs)
		if err != nil {
			return nil, err
		}
		done = sealed && maps.EqualFunc(merged, theirs, bytes.Equal)
		if !done {
			next, err := m.seals.Seal(merged)
			if err != nil {
				return nil, err
			}
			if done, err = m.shared.Put(ctx, m.name, next, revision); !done || err != nil {
				return nil, err
			}
		}
		return merged, nil
	})
	return done, err
}

// follow keeps them the same until the context ends.
func (m *mirror) follow(ctx context.Context, _ *controlplane.Plane) error {
	changed, watched := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(watched)
		m.shared.Follow(ctx, m.name, func() { signal.Wake(changed) })
	}()
	defer func() { <-watched }()
	f := &follow.File{Source: follow.Source{
		What: "shared files", File: m.folder.path,
		Read: func(string) ([]byte, error) { return m.folder.state() },
		Use:  func(ctx context.Context, _ []byte) error { return m.sync(ctx) },
	}}
	ticker := time.NewTicker(follow.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-ticker.C:
			f.Look(ctx, now)
		case <-changed:
			if err := m.sync(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Could not take the files that servers share; will retry", "folder", m.folder.path)
				time.AfterFunc(follow.Retry, func() { signal.Wake(changed) })
			}
		}
	}
}
