package kine

import (
	"context"
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
