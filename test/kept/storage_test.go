package kept_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/test/kept"
)

// prefix is where the ConfigMaps are that have history.
const prefix = "/registry/configmaps/" + kept.Namespace + "/"

// revision is one change of a key, or the last one.
type revision struct {
	Type, Name string
	Revision   int64
}

// TestKeptHistory reads from the storages themselves what happened before a
// server starts: API servers answer from caches, which have no past.
func TestKeptHistory(t *testing.T) {
	t.Parallel()
	listings, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil || len(listings) == 0 {
		t.Fatalf("no data is kept: %v", err)
	}
	for _, path := range listings {
		base := strings.TrimSuffix(path, ".json")
		t.Run(filepath.Base(base), func(t *testing.T) {
			t.Parallel()
			s := unpack(t, base)
			client := s.open(t)
			for _, past := range s.listing.Past {
				s.checkKeys(t, client, past)
			}
			s.checkChanges(t, client)
		})
	}
}

// open opens the storage without a server.
func (s *subject) open(t *testing.T) *clientv3.Client {
	t.Helper()
	_, path, _ := strings.Cut(kept.Storage(s.listing.Storage, s.dir), ":")
	storage := map[string]controlplane.Storage{"sqlite": sqlite.File{Path: path}, "etcd": etcd.Embedded{Dir: path}}[s.listing.Storage]
	backend := storage.Open()
	ctx, cancel := context.WithTimeout(t.Context(), kept.Limit)
	defer cancel()
	if err := backend.Start(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), kept.Limit)
		defer cancel()
		if err := backend.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	client, err := backend.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// checkKeys reads the keys of an earlier revision, or that it is compacted.
func (s *subject) checkKeys(t *testing.T, client *clientv3.Client, past kept.Past) {
	t.Helper()
	got, err := client.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithRev(past.Revision))
	if errors.Is(err, rpctypes.ErrCompacted) {
		t.Logf("revision %d is compacted", past.Revision)
		return
	}
	if err != nil {
		t.Errorf("keys of revision %d: %v", past.Revision, err)
		return
	}
	if got.Header.Revision < s.listing.Revision {
		t.Errorf("the revision went back from %d to %d", s.listing.Revision, got.Header.Revision)
	}
	var want, found []revision
	for _, o := range past.Objects {
		want = append(want, revision{Name: o.Name, Revision: number(t, o.ResourceVersion)})
	}
	for _, kv := range got.Kvs {
		found = append(found, revision{Name: strings.TrimPrefix(string(kv.Key), prefix), Revision: kv.ModRevision})
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("keys of revision %d (-want +got):\n%s", past.Revision, diff)
	}
}

// checkChanges watches from an earlier revision, which may be compacted.
func (s *subject) checkChanges(t *testing.T, client *clientv3.Client) {
	t.Helper()
	var want, found []revision
	for _, e := range s.listing.Watch.Events {
		kind := map[string]string{"ADDED": "create", "MODIFIED": "modify", "DELETED": "delete"}[e.Type]
		want = append(want, revision{Type: kind, Name: e.Name, Revision: number(t, e.ResourceVersion)})
	}
	ctx, cancel := context.WithTimeout(t.Context(), kept.Limit)
	defer cancel()
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(s.listing.Watch.From+1), clientv3.WithPrevKV())
	for len(found) < len(want) {
		answer, open := <-changes
		if errors.Is(answer.Err(), rpctypes.ErrCompacted) {
			t.Logf("what followed revision %d is compacted", s.listing.Watch.From)
			return
		}
		if err := answer.Err(); err != nil || !open {
			t.Fatalf("the watch ended after %d changes of %d: %v, %v", len(found), len(want), err, ctx.Err())
		}
		for _, e := range answer.Events {
			r := revision{Type: "modify", Name: strings.TrimPrefix(string(e.Kv.Key), prefix), Revision: e.Kv.ModRevision}
			switch {
			case e.IsCreate():
				r.Type = "create"
			case e.Type == clientv3.EventTypeDelete:
				r.Type = "delete"
			}
			if !e.IsCreate() && (e.PrevKv == nil || len(e.PrevKv.Value) == 0) {
				t.Errorf("%+v: what was there before is missing", r)
			}
			found = append(found, r)
		}
	}
	// What was acknowledged just before a kill follows the last listed event.
	if diff := cmp.Diff(want, found[:len(want)]); diff != "" {
		t.Errorf("changes since revision %d (-want +got):\n%s", s.listing.Watch.From, diff)
	}
}

func number(t *testing.T, version string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatalf("resource version %q: %v", version, err)
	}
	return n
}
