package aggregator

import (
	"context"
	"net/url"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
)

// maxHops is how many requests with a deadline may be at one server. One that is slow takes
// no more of the requests that this server answers at once.
const maxHops = 200

// hop is a request on its way to another server.
type hop struct {
	to      *url.URL
	as      user.Info
	auditID string
	via     string // this server, for header Via
	lasts   bool   // it has no deadline
	failed  bool   // the server did not answer it, and may have done it
	end     context.CancelCauseFunc
}

type hopKey struct{}

func hopOf(ctx context.Context) *hop {
	h, _ := ctx.Value(hopKey{}).(*hop)
	return h
}

// hops are the requests at one server.
type hops struct {
	mu    sync.Mutex
	all   map[*hop]struct{}
	short int // with a deadline
}

// enter counts a request, and tells whether there is room for it.
func (h *hops) enter(one *hop) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !one.lasts {
		if h.short >= maxHops {
			return false
		}
		h.short++
	}
	if h.all == nil {
		h.all = map[*hop]struct{}{}
	}
	h.all[one] = struct{}{}
	return true
}

func (h *hops) leave(one *hop) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, one)
	if !one.lasts {
		h.short--
	}
}

// cut ends the requests.
func (h *hops) cut(cause error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for one := range h.all {
		one.end(cause)
	}
}
