package storage_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// serve runs a server, and returns how it ends.
func serve(t *testing.T, s controlplane.Storage, parts ...controlplane.Part) (server *controlplane.Server, ended <-chan error, stop func()) {
	t.Helper()
	server, err := controlplane.New("shop").Storage(s).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	select {
	case <-server.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	return server, done, cancel
}

// TestServedCluster: a server on a cluster is noticed by its Lease. One without ends when its storage is filled with
// something else.
func TestServedCluster(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	fill(t, file, map[string]string{"/registry/a": "1"})
	_, address := listen(t, dir)
	cluster := etcd.Cluster{Endpoints: []string{address}}
	over := storage.Options{Overwrite: true, AcceptNewRevisions: true}

	_, ended, stop := serve(t, cluster, core.Namespaces{}, coordination.Leases{})
	present(t, cluster)
	for name, copied := range map[string][2]controlplane.Storage{"to it": {file, cluster}, "of it": {cluster, sqlite.File{Path: filepath.Join(t.TempDir(), "b.db")}}} {
		if _, err := storage.Copy(t.Context(), copied[0], copied[1], over); err == nil || !strings.Contains(err.Error(), "servers are running on it") {
			t.Errorf("a copy %s: %v, want it refused", name, err)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}

	_, ended, _ = serve(t, cluster, core.ConfigMaps{})
	if _, err := storage.Copy(t.Context(), file, cluster, over); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "it was filled with a copy or a backup") {
			t.Errorf("the server ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the server goes on, on a storage that was filled with something else")
	}
}

// present waits until a server has said that it is there.
func present(t *testing.T, s controlplane.Storage) {
	t.Helper()
	c, stop := open(t, s)
	defer stop()
	for deadline := time.Now().Add(time.Minute); ; {
		peers, err := controlplane.Serving(t.Context(), c, "/registry")
		if err != nil {
			t.Fatal(err)
		}
		if len(peers) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no server is there")
		}
	}
}

// TestNewerFormat: what a later version stored is used by nobody who does not know it.
func TestNewerFormat(t *testing.T) {
	t.Parallel()
	file, dir := files(t)
	fill(t, file, map[string]string{"/registry/a": "1", "/registry/.internal/shared/format": `{"format":2}`})
	fill(t, dir, map[string]string{"/registry/a": "1"})
	server, err := controlplane.New("shop").Storage(file).Build()
	if err != nil {
		t.Fatal(err)
	}
	_, from := storage.Copy(t.Context(), file, dir, storage.Options{Overwrite: true})
	_, to := storage.Copy(t.Context(), dir, file, storage.Options{Overwrite: true})
	for name, err := range map[string]error{"a server": server.Run(t.Context()), "a copy of it": from, "a copy to it": to} {
		if err == nil || !strings.Contains(err.Error(), "has format 2, and this version knows formats up to 1") {
			t.Errorf("%s: %v, want it refused", name, err)
		}
	}
}
