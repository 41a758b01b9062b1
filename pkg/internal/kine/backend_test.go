package kine

import (
	"context"
	"errors"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// refusing is a backend that writes nothing and calls that a conflict, as
// kine's SQL drivers do on a full disk.
type refusing struct {
	server.Backend
	present *server.KeyValue
}

func (r *refusing) Update(context.Context, string, []byte, int64, int64) (int64, *server.KeyValue, bool, error) {
	return 7, r.present, false, nil
}

func (r *refusing) Delete(context.Context, string, int64) (int64, *server.KeyValue, bool, error) {
	return 7, r.present, r.present == nil, nil
}

func (r *refusing) Get(context.Context, string, int64, bool) (int64, *server.KeyValue, error) {
	return 7, r.present, nil
}

func (r *refusing) CurrentRevision(context.Context) (int64, error) { return 7, nil }

func TestWritesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		present  *server.KeyValue
		revision int64
		want     codes.Code
		reason   string
	}{
		"database": {&server.KeyValue{Key: "/a", ModRevision: 3}, 3, codes.Unavailable, "the comparison held, so it was no conflict"},
		"conflict": {&server.KeyValue{Key: "/a", ModRevision: 4}, 3, codes.OK, "somebody else was first"},
		"missing":  {nil, 3, codes.OK, "there is nothing to write to"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guarded{Backend: &refusing{present: c.present}}
			_, _, updated, err := g.Update(t.Context(), "/a", nil, c.revision, 0)
			if updated || status.Code(err) != c.want {
				t.Errorf("update: %s: got %v, %v, want %v", c.reason, updated, err, c.want)
			}
			_, _, deleted, err := g.Delete(t.Context(), "/a", c.revision)
			if deleted || status.Code(err) != c.want {
				t.Errorf("delete: %s: got %v, %v, want %v", c.reason, deleted, err, c.want)
			}
		})
	}
}

func TestRevisionsNeverGoBack(t *testing.T) {
	g := &guarded{}
	for _, revision := range []int64{3, 9, 4} {
		g.acknowledge(revision)
	}
	if got := g.acked.Load(); got != 9 {
		t.Errorf("got %d, want 9", got)
	}
}

// lost is a backend that lost its revision, and takes a later one for one to
// come where it finds nothing.
type lost struct {
	server.Backend
	compacted int64
}

func (l *lost) CurrentRevision(context.Context) (int64, error) { return 3, nil }

func (l *lost) Get(context.Context, string, int64, bool) (int64, *server.KeyValue, error) {
	return 0, nil, server.ErrFutureRev
}

func (l *lost) List(context.Context, string, string, int64, int64, bool) (int64, []*server.KeyValue, error) {
	return 0, nil, server.ErrFutureRev
}

func (l *lost) Count(_ context.Context, _, _ string, revision int64) (int64, int64, error) {
	if revision < l.compacted {
		return 9, 0, server.ErrCompacted
	}
	return 9, 0, nil
}

func TestReadsAtARevision(t *testing.T) {
	for name, c := range map[string]struct {
		revision int64
		want     error
		reason   string
	}{
		"acknowledged": {7, nil, "a write was acknowledged with a later revision"},
		"compacted":    {5, server.ErrCompacted, "its history is gone"},
		"future":       {9, server.ErrFutureRev, "nobody knows it yet"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &guarded{Backend: &lost{compacted: 6}}
			g.acknowledge(8)
			if _, _, err := g.Get(t.Context(), "/a", c.revision, false); !errors.Is(err, c.want) {
				t.Errorf("get: %s: got %v, want %v", c.reason, err, c.want)
			}
			if _, _, err := g.List(t.Context(), "/a", "/b", 0, c.revision, false); !errors.Is(err, c.want) {
				t.Errorf("list: %s: got %v, want %v", c.reason, err, c.want)
			}
		})
	}
}
