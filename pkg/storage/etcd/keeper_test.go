package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

const mebibyte = 1 << 20

// startedIn starts an etcd and stops it when the test ends.
func startedIn(t *testing.T, e Embedded) (controlplane.Backend, *clientv3.Client) {
	t.Helper()
	s := e.Open()
	must(t, s.Start(t.Context()))
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, clientOf(t, s)
}

// putAll writes a value to a key again and again, for as long as it is told to wait
// for room, and returns the error that it ends with.
func putAll(t *testing.T, c *clientv3.Client, key, value string, times int) error {
	t.Helper()
	for i := range times {
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			_, err := c.Put(t.Context(), key, value)
			if err == nil {
				break
			}
			if status.Code(err) != codes.ResourceExhausted || errors.Is(err, rpctypes.ErrNoSpace) || time.Now().After(end) {
				return fmt.Errorf("write %d of %d: %w", i, times, err)
			}
		}
	}
	return nil
}

// TestHistoryIsBounded: updates to a few keys may go on for ever.
func TestHistoryIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, c := startedIn(t, Embedded{Dir: dir, UnsafeNoSync: true, QuotaBytes: 128 * mebibyte, HistoryBytes: 8 * mebibyte})
	value := strings.Repeat("x", mebibyte)
	for i := range 400 {
		must(t, putAll(t, c, fmt.Sprintf("/a/%d", i%3), value, 1))
	}
	got, err := c.Get(t.Context(), "/a/", clientv3.WithPrefix())
	must(t, err)
	if len(got.Kvs) != 3 {
		t.Errorf("%d keys are left, want 3", len(got.Kvs))
	}
	info, err := os.Stat(filepath.Join(dir, memberDir, "snap", "db"))
	must(t, err)
	if info.Size() > 128*mebibyte {
		t.Errorf("the file has %d bytes, want the quota at most", info.Size())
	}
}

// TestFull: a storage that is full of objects says so, is read, and starts again; what
// is deleted makes room.
func TestFull(t *testing.T) {
	t.Parallel()
	e := Embedded{Dir: t.TempDir(), UnsafeNoSync: true, QuotaBytes: 24 * mebibyte}
	value := strings.Repeat("x", mebibyte)
	s, c := startedIn(t, e)
	var err error
	n := 0
	for ; n < 100 && err == nil; n++ {
		err = putAll(t, c, fmt.Sprintf("/a/%d", n), value, 1)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("after %d MiB: %v, want that there is no space", n, err)
	}
	must(t, s.Stop(context.Background()))

	_, c = startedIn(t, e)
	got, err := c.Get(t.Context(), "/a/", clientv3.WithPrefix(), clientv3.WithCountOnly())
	must(t, err)
	if got.Count < 10 {
		t.Fatalf("%d keys are left of %d", got.Count, n)
	}
	for i := range n - 5 { // it has more than the quota, of which etcd learns when it is on disk
		_, err := c.Txn(t.Context()).Then(clientv3.OpDelete(fmt.Sprintf("/a/%d", i))).Commit()
		must(t, err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		if err = putAll(t, c, "/b", value, 1); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("all but 5 MiB were deleted, and a write still ends in %v", err)
		}
	}
}

// BenchmarkEmbeddedHistory updates 100 keys, 100 KiB each time, and reports the size of
// the file: -benchtime 104858x is 10 GiB.
func BenchmarkEmbeddedHistory(b *testing.B) {
	dir := b.TempDir()
	s := Embedded{Dir: dir, UnsafeNoSync: true}.Open()
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Stop(context.Background())
	c, err := s.Client()
	if err != nil {
		b.Fatal(err)
	}
	value := strings.Repeat("x", 100<<10)
	largest := int64(0)
	for i := 0; b.Loop(); i++ {
		if _, err := c.Put(b.Context(), fmt.Sprintf("/a/%d", i%100), value); err != nil {
			b.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(dir, memberDir, "snap", "db")); err == nil {
			largest = max(largest, info.Size())
		}
	}
	info, err := os.Stat(filepath.Join(dir, memberDir, "snap", "db"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(info.Size())/mebibyte, "MiB")
	b.ReportMetric(float64(largest)/mebibyte, "MiB-at-most")
}
