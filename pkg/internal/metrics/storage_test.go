package metrics

import (
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"
)

// TestStorages: storages with one engine are one in the metrics, and are gone from them
// when they stop.
func TestStorages(t *testing.T) {
	t.Parallel()
	long := time.Unix(1000, 0)
	first := Report("a", func() Storage {
		return Storage{History: ptr.To[int64](1), File: ptr.To[int64](10), Compacted: long, Lag: ptr.To[int64](3)}
	})
	second := Report("a", func() Storage {
		return Storage{History: ptr.To[int64](2), File: ptr.To[int64](20), Compacted: time.Now()}
	})
	third := Report("b", func() Storage { return Storage{Compacted: time.Now()} })
	defer third()
	want := map[string]float64{
		"history_bytes": 3, "file_bytes": 30, "last_compaction_timestamp_seconds": 1000, "watch_lag_revisions": 3,
	}
	for name, value := range want {
		if got := gaugeOf(t, name, "a"); got == nil || *got != value {
			t.Errorf("%s is %v, want %v", name, got, value)
		}
	}
	if got := gaugeOf(t, "watch_lag_revisions", "b"); got != nil {
		t.Errorf("the lag is %v, and nobody knows it", *got)
	}
	first()
	second()
	if got := gaugeOf(t, "file_bytes", "a"); got != nil {
		t.Errorf("a storage that stopped has %v bytes", *got)
	}
	Refused(NoSpace)
	if got := gaugeOf(t, "refused_total", string(NoSpace)); got == nil || *got < 1 {
		t.Errorf("refused requests are %v, want 1", got)
	}
}

// gaugeOf is the value of a metric with a label of this value, or nil.
func gaugeOf(t *testing.T, name, label string) *float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "sailplane_storage_"+name {
			continue
		}
		for _, m := range f.Metric {
			if slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return strings.EqualFold(l.GetValue(), label) }) {
				return ptr.To(m.GetGauge().GetValue() + m.GetCounter().GetValue())
			}
		}
	}
	return nil
}
