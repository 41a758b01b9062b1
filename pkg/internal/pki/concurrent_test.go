package pki

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
)

// TestLoadConcurrent starts many servers at once on a new folder.
func TestLoadConcurrent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	ids := make([]*Identity, 16)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			id, err := Dir(dir).Load(t.Context(), Request{})
			if err != nil {
				t.Errorf("start %d: %v", i, err)
			}
			ids[i] = id
		})
	}
	group.Wait()
	for _, id := range ids {
		if diff := cmp.Diff(ids[0], id); diff != "" {
			t.Fatalf("identities differ:\n%s", diff)
		}
	}
	checkIdentity(t, ids[0], time.Now())
}

// TestLoadConcurrentHosts starts servers at once that each need another name.
func TestLoadConcurrentHosts(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pki")
	hosts := []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com", "192.0.2.1", "192.0.2.2"}
	var group sync.WaitGroup
	for _, host := range hosts {
		group.Go(func() {
			id, err := Dir(dir).Load(t.Context(), Request{Hosts: []string{host}})
			if err != nil {
				t.Errorf("%s: %v", host, err)
				return
			}
			checkIdentity(t, id, time.Now())
		})
	}
	group.Wait()
	cert := mustCert(t, mustLoad(t, dir, Request{}).ServerCert)
	for _, host := range hosts {
		if err := cert.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
}

func TestLoadLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lock, err := filelock.Take(filepath.Join(dir, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = Dir(dir).Load(ctx, Request{})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), filepath.Join(dir, lockFile)) {
		t.Errorf("error %v, want a deadline that names the lock", err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	mustLoad(t, dir, Request{})
}
