package metrics

import (
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Reason is why a storage refused a request.
type Reason string

// The reasons, as metrics and health checks name them.
const (
	NoAnswer       Reason = "answer"      // it cannot be reached, or has stopped
	NoLeader       Reason = "leader"      // the members of its cluster have none
	BadCertificate Reason = "certificate" // it or this server does not trust the other
	NoSpace        Reason = "space"       // it is full
	TooSlow        Reason = "speed"       // it does not answer in time
	MakesRoom      Reason = "room"        // it is full of history, and drops that
	TooLarge       Reason = "size"        // of the request
)

// Storage is what a storage reports of itself when somebody asks for metrics.
type Storage struct {
	// History is how many bytes of history are kept, as far as is known, and File
	// how many the storage takes on disk or in memory.
	History, File int64
	// Compacted is when history was last dropped, or when the storage was started.
	Compacted time.Time
	// Lag is how many revisions the watch is behind that is most behind. Nil: nobody knows.
	Lag *int64
}

//nolint:gochecknoglobals // metrics are the process'
var (
	registered sync.Once
	refused    = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sailplane", Subsystem: "storage", Name: "refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Requests that the storage refused, by reason: answer, leader, certificate, space, speed, room, size",
	}, []string{"reason"})
	storages = &reporting{by: map[*reporter]struct{}{}}
)

func register() {
	registered.Do(func() {
		legacyregistry.MustRegister(refused)
		legacyregistry.CustomMustRegister(storages)
	})
}

// Refused counts a request that a storage refused.
func Refused(why Reason) {
	register()
	refused.WithLabelValues(string(why)).Inc()
}

// Report has a storage asked for its figures until stop is called. Storages with one
// engine in a process are one in the metrics: sums, and the worst of ages.
func Report(engine string, ask func() Storage) (stop func()) {
	register()
	r := &reporter{engine, ask}
	storages.mu.Lock()
	defer storages.mu.Unlock()
	storages.by[r] = struct{}{}
	return func() {
		storages.mu.Lock()
		defer storages.mu.Unlock()
		delete(storages.by, r)
	}
}

type reporter struct {
	engine string
	ask    func() Storage
}

// reporting collects what the storages of the process report.
type reporting struct {
	metrics.BaseStableCollector

	mu sync.Mutex
	by map[*reporter]struct{}
}

func desc(name, help string) *metrics.Desc {
	return metrics.NewDesc("sailplane_storage_"+name, help, []string{"engine"}, nil, metrics.ALPHA, "")
}

//nolint:gochecknoglobals // constants, but for their type
var (
	historyDesc   = desc("history_bytes", "Bytes of history that the storage keeps, as far as it knows")
	fileDesc      = desc("file_bytes", "Bytes that the storage takes, on disk or in memory")
	compactedDesc = desc("last_compaction_timestamp_seconds", "When history was last dropped, or the start")
	lagDesc       = desc("watch_lag_revisions", "How many revisions the watch is behind that is most behind")
)

// DescribeWithStability implements metrics.StableCollector.
func (r *reporting) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{historyDesc, fileDesc, compactedDesc, lagDesc} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (r *reporting) CollectWithStability(ch chan<- metrics.Metric) {
	r.mu.Lock()
	asked := make([]*reporter, 0, len(r.by))
	for one := range r.by {
		asked = append(asked, one)
	}
	r.mu.Unlock()
	sums := map[string]*Storage{}
	for _, one := range asked {
		s := one.ask()
		sum := sums[one.engine]
		if sum == nil {
			sums[one.engine] = &s
			continue
		}
		sum.History += s.History
		sum.File += s.File
		if s.Compacted.Before(sum.Compacted) {
			sum.Compacted = s.Compacted
		}
		if s.Lag != nil && (sum.Lag == nil || *s.Lag > *sum.Lag) {
			sum.Lag = s.Lag
		}
	}
	for engine, s := range sums {
		gauge := func(d *metrics.Desc, value float64) {
			ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, engine)
		}
		gauge(historyDesc, float64(s.History))
		gauge(fileDesc, float64(s.File))
		gauge(compactedDesc, float64(s.Compacted.UnixNano())/float64(time.Second))
		if s.Lag != nil {
			gauge(lagDesc, float64(*s.Lag))
		}
	}
}
