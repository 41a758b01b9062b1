package etcd

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestWatchesEndTogether ends hundreds of watches of one client at once, as when an API server with one
// connection goes, and begins as many. None waits for ever.
func TestWatchesEndTogether(t *testing.T) {
	t.Parallel()
	const watches, rounds = 300, 10
	_, c := startedIn(t, Embedded{Dir: filepath.Join(t.TempDir(), "data"), UnsafeNoSync: true})
	late := time.After(time.Minute)
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var all []clientv3.WatchChan
		for i := range watches {
			// The values of a context choose the stream: here all have the same.
			all = append(all, c.Watch(ctx, fmt.Sprint("/t/", i), clientv3.WithCreatedNotify()))
		}
		cancel()
		for i, w := range all {
			for open := true; open; {
				select {
				case _, open = <-w:
				case <-late:
					t.Fatalf("round %d: watch %d of %d does not end", round, i, watches)
				}
			}
		}
	}
}
