package metrics

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// maxTenants is how many tenants have series of their own: those that are nearest to a limit.
const maxTenants = 50

// Tenant is what an EtcdStorage has.
type Tenant struct {
	Name        string
	Keys, Bytes int64
	// Full is the part of its limits that is used, from 0 to 1.
	Full      float64
	Connected bool
}

//nolint:gochecknoglobals // metrics are the process', and constants, but for their type
var (
	tenantsRegistered sync.Once
	tenants           = &lent{by: map[*func() []Tenant]struct{}{}}
	tenantRefused     = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "sailplane", Subsystem: "etcd_storage", Name: "refused_total", StabilityLevel: metrics.ALPHA,
		Help: "Calls of clients of EtcdStorages that were over a limit: calls, rate, room, size, watches",
	}, []string{"limit"})
	tenantCount = tenantDesc("s", "How many EtcdStorages there are, by whether a client is connected to this process", "connected")
	tenantKeys  = tenantDesc("_keys", "Keys in an EtcdStorage, of those nearest to a limit", "etcd_storage")
	tenantBytes = tenantDesc("_bytes", "Bytes of keys and values in an EtcdStorage, of those nearest to a limit", "etcd_storage")
	tenantFull  = tenantDesc("_limit_used_ratio", "Part of its limits that an EtcdStorage has, of those nearest to one", "etcd_storage")
)

func tenantDesc(name, help, label string) *metrics.Desc {
	return metrics.NewDesc("sailplane_etcd_storage"+name, help, []string{label}, nil, metrics.ALPHA, "")
}

func registerTenants() {
	tenantsRegistered.Do(func() {
		legacyregistry.MustRegister(tenantRefused)
		legacyregistry.CustomMustRegister(tenants)
	})
}

// TenantRefused counts a call that is over a limit.
func TenantRefused(limit string) {
	registerTenants()
	tenantRefused.WithLabelValues(limit).Inc()
}

// ReportTenants has ask called for what tenants have until stop is called.
func ReportTenants(ask func() []Tenant) (stop func()) {
	registerTenants()
	tenants.mu.Lock()
	defer tenants.mu.Unlock()
	tenants.by[&ask] = struct{}{}
	return func() {
		tenants.mu.Lock()
		defer tenants.mu.Unlock()
		delete(tenants.by, &ask)
	}
}

// lent collects what the servers of the process report.
type lent struct {
	metrics.BaseStableCollector

	mu sync.Mutex
	by map[*func() []Tenant]struct{}
}

// DescribeWithStability implements metrics.StableCollector.
func (l *lent) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{tenantCount, tenantKeys, tenantBytes, tenantFull} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector. Tenants of one name, of several
// servers in a process, are one: the fullest.
func (l *lent) CollectWithStability(ch chan<- metrics.Metric) {
	l.mu.Lock()
	var all []Tenant
	for ask := range l.by {
		all = append(all, (*ask)()...)
	}
	reporting := len(l.by) > 0
	l.mu.Unlock()
	if !reporting {
		return
	}
	gauge := func(d *metrics.Desc, value float64, label string) {
		ch <- metrics.NewLazyConstMetric(d, metrics.GaugeValue, value, label)
	}
	connected := 0
	for _, t := range all {
		if t.Connected {
			connected++
		}
	}
	gauge(tenantCount, float64(connected), "true")
	gauge(tenantCount, float64(len(all)-connected), "false")
	slices.SortFunc(all, func(a, b Tenant) int { return cmp.Or(cmp.Compare(b.Full, a.Full), cmp.Compare(a.Name, b.Name)) })
	told := map[string]bool{}
	for _, t := range all {
		if told[t.Name] || len(told) == maxTenants {
			continue
		}
		told[t.Name] = true
		gauge(tenantKeys, float64(t.Keys), t.Name)
		gauge(tenantBytes, float64(t.Bytes), t.Name)
		gauge(tenantFull, t.Full, t.Name)
	}
}
