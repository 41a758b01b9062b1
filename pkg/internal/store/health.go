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
	// healthTimeout is how long a storage has for an answer.
	healthTimeout = 2 * time.Second
	// healthValid is for how long an answer holds, so that who asks for health
	// cannot keep a storage busy.
	healthValid = time.Second
	// writeInterval is how often health is asked with a write, while these succeed.
	writeInterval = 30 * time.Second
)

// Health asks a storage whether it is well: it reads, and writes now and then.
type Health struct {
	engine string
	client *clientv3.Client
	key    string

	mu             sync.Mutex
	asked, written time.Time
	failure        error
	writeFailed    bool
}

// NewHealth returns the health of a storage with keys below the prefix. What it
// writes is beside that.
func NewHealth(engine string, client *clientv3.Client, prefix string) *Health {
	return &Health{engine: engine, client: client, key: strings.TrimSuffix(prefix, "/") + "-health"}
}

// Checks are the checks of the storage, one for each thing that may be wrong with it:
// /readyz tells anybody their names and nobody the reasons, which are at
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

// ask returns what is wrong. Who asks at the same time gets the same answer.
func (h *Health) ask(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.asked) < healthValid {
		return h.failure
	}
	// The answer is for others too, whoever goes away.
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
