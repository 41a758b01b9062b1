package backup_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// opened is a client of a storage in memory.
func opened(t *testing.T) *clientv3.Client {
	t.Helper()
	b := memory.Store{}.Open()
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := b.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close() // its error only says that it was closed
		if err := b.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestElsewhere: what parts of a server keep in other storages is in a backup of it, as it was at a revision, in place of
// what the server's own has with these keys.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	other := opened(t)
	put := func(c *clientv3.Client, key, value string) int64 {
		t.Helper()
		r, err := c.Put(t.Context(), key, value)
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	roots := []string{"/registry/m/k", "/registry/~/", "/registry/!/"} // between the keys of the server, after them, and before
	var revision int64
	for _, root := range roots {
		revision = put(other, root+"1", "there")
	}
	for _, root := range roots {
		put(other, root+"1", "later")
		put(other, root+"2", "later")
	}
	var asked int64
	var away error
	s, stop := serve(t, file(t), controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
		p.KeepElsewhere("test", func(_ context.Context, own int64) (all []controlplane.Elsewhere, _ error) {
			asked = own
			for _, root := range roots {
				all = append(all, controlplane.Elsewhere{
					Client: other, Revision: revision, Root: root, Key: root + "~", Value: []byte("said"),
				})
			}
			return all, away
		})
		return nil
	}))
	secrets(t, s, 3)
	own, _ := s.Stored()
	for _, key := range []string{"1", "3", "~"} {
		put(own, roots[0]+key, "left")
	}
	var b bytes.Buffer
	info, err := backup.Write(t.Context(), s, &b)
	if err != nil || info.Revision != asked {
		t.Fatalf("%v: at revision %d, and %d was asked for", err, info.Revision, asked)
	}
	want := at(t, own, info.Revision)
	for _, root := range roots {
		maps.DeleteFunc(want, func(key, _ string) bool { return strings.HasPrefix(key, root) })
		want[root+"1"], want[root+"~"] = "there", "said"
	}
	away = errors.New("it is away")
	if _, err := backup.Write(t.Context(), s, io.Discard); !errors.Is(err, away) {
		t.Errorf("when a part cannot be read: %v", err)
	}
	stop()
	to := file(t)
	if _, err := backup.Restore(t.Context(), bytes.NewReader(b.Bytes()), to, backup.Options{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, stored(t, to)); diff != "" {
		t.Errorf("the backup (-want +got):\n%s", diff)
	}
}
