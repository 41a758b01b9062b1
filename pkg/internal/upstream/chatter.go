package upstream

import (
	"strings"
	"sync"
	"time"
)

// unhandled is the message of what utilruntime.HandleError logs.
// https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/util/runtime/runtime.go#L205
const unhandled = "Unhandled Error"

// postTimeout is the message about a request that ended after it was cancelled, or after
// its time; its attribute result is the value that it panicked with, or nil.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/filters/timeout.go#L140
const postTimeout = "Post-timeout activity"

// cutOff is the message about an answer that took too long or whose client went away, which
// apiserver_request_aborts_total counts.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/filters/wrap.go#L54
const cutOff = "Timeout or abort while handling"

// ofLease tells whether a message is about a request of a leader election that failed.
// https://github.com/kubernetes/client-go/blob/v0.37.2/tools/leaderelection/leaderelection.go#L378
func ofLease(message string) bool {
	switch message {
	case "Error retrieving lease lock", "Error initially creating lease lock", "Failed to update lock", "Failed to update lease":
		return true
	}
	return false
}

// chatter recognises what libraries log as an error although it is none, or is one
// that was logged before.
type chatter struct {
	mu sync.Mutex
	// open are the webhooks that fail open, by name, and when they did last.
	open map[string]time.Time
}

// Tenants choose the names of webhooks, so the memory and the lines for them have a
// limit: what is above it is counted in the metrics only.
const (
	maxOpen = 256
	// openAgain is how long a webhook does not fail before its next failure is news.
	openAgain = 10 * time.Minute
)

// has tells whether an error is chatter. The text is the message, or the error if the
// message says only that there is one.
func (c *chatter) has(text string) bool {
	if webhook, found := strings.CutPrefix(text, "failed calling webhook "); found {
		// A client that went away says nothing about the webhook.
		return strings.HasSuffix(webhook, "context canceled") || c.repeated(webhook)
	}
	return consequence(text)
}

// repeated tells whether a webhook's failing open was logged before. Upstream logs it
// for every request, after counting it in
// apiserver_admission_webhook_fail_open_count; calls that fail closed are not logged.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/admission/plugin/webhook/mutating/dispatcher.go#L210
func (c *chatter) repeated(failure string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(failure, `\"`), `"`)
	name = strings.TrimRight(name, `\`)
	name = name[:min(len(name), maxValue)]
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for webhook, last := range c.open {
		if now.Sub(last) > openAgain {
			delete(c.open, webhook)
		}
	}
	_, known := c.open[name]
	if !known && len(c.open) >= maxOpen {
		return true
	}
	if c.open == nil {
		c.open = map[string]time.Time{}
	}
	c.open[name] = now
	return known
}

// consequence recognises what is logged because a client went away or the plane is
// stopping.
func consequence(text string) bool {
	message, _, _ := strings.Cut(text, ": ")
	switch {
	case text == cutOff:
		return true
	case strings.HasPrefix(text, "Unable to sync caches"):
		// Said only when the wait for them was ended.
		// https://github.com/kubernetes/kube-aggregator/blob/v0.37.2/pkg/controllers/cache.go#L35
		return true
	case ofLease(message):
		// A stop ends the request for the Lease that is under way.
		return strings.HasSuffix(text, "context canceled")
	case strings.HasPrefix(text, "apiserver was unable to write a "),
		strings.HasPrefix(text, "apiserver received an error that is not an metav1.Status: "):
		// The request took too long, or its client went away: its own line, "Post-timeout
		// activity", follows.
		// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/filters/timeout.go#L133
		return strings.HasSuffix(text, "http: Handler timeout") || strings.HasSuffix(text, "context canceled") ||
			strings.HasSuffix(text, "io: read/write on closed pipe")
	case text == postTimeout+": <nil>":
		// The request was cancelled, and then ended by itself: without a panic.
		return true
	case strings.Contains(text, "loopback: the server is stopped"):
		return true
	case strings.HasPrefix(text, "FinishRequest: post-timeout activity"):
		return strings.Contains(text, "panicked: false")
	}
	return false
}
