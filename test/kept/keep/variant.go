package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/kept"
)

// How a server ends, in a listing.
const (
	stopped = "stopped"
	killed  = "killed"
)

// encryption encrypts a resource of each kind that is stored in its own way.
// The key is worth nothing: it lies beside what it encrypts.
const encryption = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [configmaps, secrets, gadgets.kept.example.com]
  providers:
  - secretbox: {keys: [{name: kept, secret: YSBrZXkgdGhhdCBpcyBvZiBubyB1c2UgdG8gYW55b24=}]}
  - identity: {}
`

// variant is one data directory that is made and kept.
type variant struct {
	name    string
	binary  string
	age     time.Duration
	listing kept.Listing
}

// keep makes the directory and writes BASE.tar.gz and BASE.json.
func (v *variant) keep(ctx context.Context, base string) error {
	dir, err := os.MkdirTemp("", "kept-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if v.listing.Encrypted {
		if err := os.WriteFile(filepath.Join(dir, kept.EncryptionFile), []byte(encryption), 0o600); err != nil {
			return err
		}
	}
	server, err := kept.Serve(ctx, v.binary, v.listing.Storage, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	config, err := server.Admin()
	if err != nil {
		return err
	}
	if err := v.write(ctx, config); err != nil {
		return err
	}
	if err := v.end(ctx, server, config); err != nil {
		return err
	}
	if v.listing.CA, err = kept.Sum(filepath.Join(dir, "pki", "ca.crt")); err != nil {
		return err
	}
	return errors.Join(kept.Pack(dir, base+".tar.gz"), v.listing.Write(base+".json"))
}

// end ends the server as the listing says. One that is killed has just
// acknowledged a write.
func (v *variant) end(ctx context.Context, server *kept.Server, config *rest.Config) error {
	if v.listing.Ended != killed {
		return server.Stop()
	}
	w, err := newWriter(config)
	if err != nil {
		return err
	}
	u, err := w.configMaps().Create(ctx, configMap("acknowledged", "before", "the kill"), metav1.CreateOptions{FieldManager: manager})
	server.Kill()
	if err != nil {
		return err
	}
	if v.listing.Revision, err = strconv.ParseInt(u.GetResourceVersion(), 10, 64); err != nil {
		return err
	}
	o, err := kept.Of(kept.ConfigMaps(), u)
	v.listing.Objects = append(v.listing.Objects, o)
	return err
}

// write makes everything that is kept, and lists it.
func (v *variant) write(ctx context.Context, config *rest.Config) error {
	w, err := newWriter(config)
	if err != nil {
		return err
	}
	if err := w.create(ctx, v.largest()); err != nil {
		return err
	}
	if v.listing.Token, v.listing.TokenUser, err = w.token(ctx); err != nil {
		return err
	}
	early, err := w.now(ctx)
	if err != nil {
		return err
	}
	select {
	case <-time.After(v.age): // the server compacts by the clock
	case <-ctx.Done():
		return ctx.Err()
	}
	if v.listing.Past, v.listing.Watch, err = w.change(ctx, early); err != nil {
		return err
	}
	v.listing.Objects, v.listing.Revision, err = kept.Settle(ctx, config)
	return err
}

// largest is the size of the largest object. What is encrypted cannot be
// compressed, so it is smaller there.
func (v *variant) largest() int {
	if v.listing.Encrypted {
		return 16 << 10
	}
	return 1<<20 - 4<<10
}
