package auditing

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// Webhook sends audit events to another server, as an audit.k8s.io/v1 EventList
// with POST.
type Webhook struct {
	// Name distinguishes several webhooks. Empty: "webhook".
	Name string
	// ConfigFile is a kubeconfig file whose current context names the server
	// and how to log in to it. Required.
	ConfigFile string
	// Policy says what is recorded; PolicyFile is a file that does, and is followed:
	// what is changed is in force within seconds, for requests that begin then. A file
	// that cannot be used changes nothing and is logged. Empty: Default.
	Policy     *auditv1.Policy
	PolicyFile string
	// Read is how PolicyFile is read. A program whose own file has the policy as a
	// section returns that section, as the content of a PolicyFile. It is called every
	// second and returns the same bytes until the policy changes. Parts that share a
	// function call it at the same time. Empty: os.ReadFile.
	Read func(file string) ([]byte, error)
	// Mode says whether requests wait for the other server. Empty: Batch. With
	// Blocking, each recorded request waits for all tries while the server is down.
	Mode Mode
	// MaxEvent is how many bytes an event may have, as that of [Log].
	MaxEvent int
	// BatchSize is how many events one request has at most. Empty: 400.
	BatchSize int
	// BatchWait is how long an event waits for others. Empty: 30 s.
	BatchWait time.Duration
	// Backoff is the pause before the first of four retries; each further pause
	// is half as long again. Empty: 10 s.
	Backoff time.Duration

	flush time.Duration // empty: flushTimeout
}

// flushTimeout bounds how long a stopping server tries to deliver its events.
const flushTimeout = 10 * time.Second

// PartName implements the name errors use.
func (Webhook) PartName() string { return "auditing.Webhook" }

// Install declares the back end. Build reads the policy and the kubeconfig;
// nothing is sent before the server runs.
func (w Webhook) Install(p *controlplane.Plan) error {
	mode := cmp.Or(w.Mode, Batch)
	size, err := positive(w.BatchSize, 400, "BatchSize")
	pause, err2 := positive(w.BatchWait, 30*time.Second, "BatchWait")
	backoff, err3 := positive(w.Backoff, 10*time.Second, "Backoff")
	p.Read(func() error {
		name := cmp.Or(w.Name, "webhook")
		rules, err := chosen{w.Policy, w.PolicyFile, w.Read}.declare(p, name)
		b, err2 := w.sender(backoff)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		b.deliver(mode, bound(w.MaxEvent), buffered.BatchConfig{MaxBatchSize: size, MaxBatchWait: pause})
		p.Audit(name, b, rules)
		return nil
	})
	return errors.Join(mode.check(), bound(w.MaxEvent).check(), err, err2, err3)
}

// sender makes the client.
func (w Webhook) sender(backoff time.Duration) (*sender, error) {
	if w.ConfigFile == "" {
		return nil, errors.New("field ConfigFile: is empty: name a kubeconfig file for the server that receives the events")
	}
	if _, err := os.Stat(w.ConfigFile); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	config, err := webhook.LoadKubeconfig(w.ConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", w.ConfigFile, err)
	}
	client, err := webhook.NewGenericWebhook(audit.Scheme, audit.Codecs, config,
		[]schema.GroupVersion{auditv1.SchemeGroupVersion}, webhook.DefaultRetryBackoffWithInitialDelay(backoff))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %q: %w", w.ConfigFile, err)
	}
	return &sender{client: client, flush: cmp.Or(w.flush, flushTimeout), ended: make(chan struct{})}, nil
}

// sender is the back end in its mode, and stops it.
type sender struct {
	audit.Backend
	client *webhook.GenericWebhook
	flush  time.Duration
	ended  chan struct{}
	end    sync.Once
}

// deliver makes the back end. The rate is that of kube-apiserver: it bounds the
// requests to the other server.
func (s *sender) deliver(mode Mode, most bound, config buffered.BatchConfig) {
	config.AsyncDelegate = true
	config.ThrottleEnable, config.ThrottleQPS, config.ThrottleBurst = true, 10, 15
	s.Backend = mode.wrap(cutting{&sink{s.client, s.ended}, most}, most, config,
		func(_ *auditinternal.Event, why reason) { metrics.Unwritten(string(why)) })
}

// Shutdown implements audit.Backend.
func (s *sender) Shutdown() {
	end := func() { s.end.Do(func() { close(s.ended) }) }
	defer time.AfterFunc(s.flush, end).Stop()
	s.Backend.Shutdown()
	end()
	if c := s.client.RestClient.Client; c != nil {
		utilnet.CloseIdleConnectionsFor(c.Transport)
	}
}

// sink sends events. The published one (plugin/pkg/audit/webhook) cannot be
// stopped: a server that stops while the other one is down would wait for more
// than a minute.
type sink struct {
	client *webhook.GenericWebhook
	ended  <-chan struct{}
}

// Run implements audit.Backend.
func (*sink) Run(<-chan struct{}) error { return nil }

// Shutdown implements audit.Backend.
func (*sink) Shutdown() {}

// String implements audit.Backend.
func (*sink) String() string { return "webhook" }

// ProcessEvents implements audit.Sink.
func (s *sink) ProcessEvents(events ...*auditinternal.Event) bool {
	list := &auditinternal.EventList{Items: make([]auditinternal.Event, 0, len(events))}
	for _, e := range events {
		list.Items = append(list.Items, *e)
	}
	ctx := wait.ContextForChannel(s.ended)
	failed := func(err error) bool { return err != nil }
	err := webhook.WithExponentialBackoff(ctx, s.client.RetryBackoff, func() error {
		return s.client.RestClient.Post().Body(list).Do(ctx).Error()
	}, failed)
	if err != nil {
		audit.HandlePluginError(s.String(), err, events...)
	}
	return err == nil
}
