package store

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

const (
	// healthTimeout is how long a storage may take to answer.
	healthTimeout = 2 * time.Second
	// healthValid is how long an answer holds, so that health requests cannot keep a
	// storage busy.
	healthValid = time.Second
	// writeInterval is how often a check writes, while the writes succeed.
	writeInterval = 30 * time.Second
)

// Health checks whether a storage is well: it reads, and writes now and then.
type Health struct {
	engine string
	client *clientv3.Client
	key    string

	mu             sync.Mutex
	asked, written time.Time
	failure        error
	writeFailed    bool
}

// NewHealth returns the health of a storage with keys below the prefix. It writes
// to a key outside the prefix.
func NewHealth(engine string, client *clientv3.Client, prefix string) *Health {
	return &Health{engine: engine, client: client, key: strings.TrimSuffix(prefix, "/") + "-health"}
}

// Checks are the checks of the storage, one for each thing that may be wrong with
// it: /readyz shows everybody their names and nobody the reasons, which are at
// /readyz/NAME.
func (h *Health) Checks() []healthz.HealthChecker {
	var checks []healthz.HealthChecker
	for _, why := range []metrics.Reason{
		metrics.NoAnswer, metrics.NoLeader, metrics.BadCertificate, metrics.NoSpace, metrics.TooSlow,
	} {
		if h.engine != "etcd" && (why == metrics.NoLeader || why == metrics.BadCertificate) {
			continue
		}
		checks = append(checks, check{name: "storage-" + h.engine + "-" + string(why), why: why, health: h})
	}
	return checks
}

type check struct {
	name   string
	why    metrics.Reason
	health *Health
}

// Name implements healthz.HealthChecker.
func (c check) Name() string { return c.name }

// GroupName implements healthz.GroupedHealthChecker.
func (c check) GroupName() string { return "storage" }

// Check implements healthz.HealthChecker.
func (c check) Check(r *http.Request) error {
	err := c.health.ask(r.Context())
	if err == nil {
		return nil
	}
	why := reasonOf(err)
	switch why {
	case "", metrics.TooLarge:
		why = metrics.NoAnswer
	case metrics.MakesRoom:
		why = metrics.NoSpace
	case metrics.NoAnswer, metrics.NoLeader, metrics.BadCertificate, metrics.NoSpace, metrics.TooSlow:
	}
	if why != c.why {
		return nil
	}
	return fmt.Errorf("%s: %w", c.health.engine, err)
}

// ask returns what is wrong. Concurrent callers get the same answer.
func (h *Health) ask(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) < healthValid {
		return h.failure
	}
	// The answer is for others too, even if this caller goes away.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	_, err := h.client.Get(limited, h.key)
	if err == nil && (h.writeFailed || time.Since(h.written) > writeInterval) {
		_, err = h.client.Put(limited, h.key, "")
		h.written, h.writeFailed = time.Now(), err != nil
	}
	h.asked, h.failure = time.Now(), err
	return err
}
