package kine

import (
	"context"
	"errors"
	"testing"

	"github.com/k3s-io/kine/pkg/server"
)

// unread is a backend whose first watch has no history, because that could not be
// read, and an event from after it; the second has all.
type unread struct {
	server.Backend
	watches int
	asked   chan int64
}

func (u *unread) Watch(_ context.Context, _, _ string, revision int64) server.WatchResult {
	u.watches++
	failed := make(chan error, 1)
	events := make(chan []*server.Event, 1)
	event := func(revision int64) *server.Event {
		return &server.Event{Create: true, KV: &server.KeyValue{Key: "/a", ModRevision: revision}}
	}
	if u.watches == 1 {
		failed <- errors.New("the disk is broken")
		events <- []*server.Event{event(9)}
		close(events)
	} else {
		events <- []*server.Event{event(8), event(9)}
	}
	u.asked <- revision
	return server.WatchResult{Events: events, Errorc: failed}
}

// TestFeedHasNoGap: where the history was not read, what comes after it is not
// taken for what comes next.
func TestFeedHasNoGap(t *testing.T) {
	u := &unread{asked: make(chan int64, 2)}
	f := newFeed(u, 7)
	ctx, cancel := context.WithCancel(t.Context())
	defer f.wait()
	defer cancel()
	f.start(ctx)
	for range 2 {
		if from := <-u.asked; from != 8 {
			t.Errorf("the feed reads from revision %d, want 8", from)
		}
	}
}
