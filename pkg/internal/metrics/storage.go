package metrics

import (
	"cmp"
	"maps"
	"slices"
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

// Storage is what is known of a storage when metrics are collected. Nil, and the
// zero time: unknown.
type Storage struct {
	// History is how many bytes of history are kept, and File how many the storage
	// takes on disk or in memory.
	History, File *int64
	// Compacted is when history was last dropped, or when the storage was started.
	Compacted time.Time
	// Lag is how many revisions the slowest watch is behind.
	Lag *int64
	// Backup is when the last backup was taken.
	Backup time.Time
}

// add takes in the report of another storage: sums, and the worst of times and
// lags.
func (s *Storage) add(other Storage) {
	s.History, s.File = sum(s.History, other.History), sum(s.File, other.File)
	s.Compacted, s.Backup = earlier(s.Compacted, other.Compacted), earlier(s.Backup, other.Backup)
	if s.Lag == nil || other.Lag != nil && *other.Lag > *s.Lag {
		s.Lag = other.Lag
	}
}

// earlier is the earlier one of two times that are known.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func sum(a, b *int64) *int64 {
	if a == nil || b == nil {
		return cmp.Or(a, b)
	}
	both := *a + *b
	return &both
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

// Report has ask called for a storage's figures until stop is called. Storages with
// one engine in a process are one in the metrics: sums, and the worst of ages.
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
	historyDesc   = desc("history_bytes", "Bytes of history that the storage keeps, as far as known")
	fileDesc      = desc("file_bytes", "Bytes that the storage uses, on disk or in memory")
	compactedDesc = desc("last_compaction_timestamp_seconds", "When the history was last compacted, or the start time if it never was")
	backupDesc    = desc("last_backup_timestamp_seconds", "When the last backup of what is stored was taken; missing if none was")
	lagDesc       = desc("watch_lag_revisions", "How many revisions the slowest watch is behind")
)

// DescribeWithStability implements metrics.StableCollector.
func (r *reporting) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{historyDesc, fileDesc, compactedDesc, backupDesc, lagDesc} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (r *reporting) CollectWithStability(ch chan<- metrics.Metric) {
	r.mu.Lock()
	asked := slices.Collect(maps.Keys(r.by))
	r.mu.Unlock()
	sums := map[string]*Storage{}
	for _, one := range asked {
		if sums[one.engine] == nil {
			sums[one.engine] = &Storage{}
		}
		sums[one.engine].add(one.ask())
	}
	for engine, s := range sums {
		gauge := func(d *metrics.Desc, value float64) {
			ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, engine)
		}
		for d, value := range map[*metrics.Desc]*int64{historyDesc: s.History, fileDesc: s.File, lagDesc: s.Lag} {
			if value != nil {
				gauge(d, float64(*value))
			}
		}
		for d, at := range map[*metrics.Desc]time.Time{compactedDesc: s.Compacted, backupDesc: s.Backup} {
			if !at.IsZero() {
				gauge(d, float64(at.UnixNano())/float64(time.Second))
			}
		}
	}
}
