package storage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// renamed is a storage that metrics call otherwise, and that may keep what it knows of
// itself.
type renamed struct {
	controlplane.Storage
	engine string
	quiet  bool
}

// Traits implements controlplane.Storage.
func (r renamed) Traits() controlplane.Traits {
	t := r.Storage.Traits()
	t.Engine = r.engine
	return t
}

// Open implements controlplane.Storage.
func (r renamed) Open() controlplane.Backend {
	if r.quiet {
		return struct{ controlplane.Backend }{r.Storage.Open()}
	}
	return r.Storage.Open()
}

// TestFigures: metrics tell of every storage how large it is, how much of that is
// history, when that was dropped, and how far watches are behind.
func TestFigures(t *testing.T) {
	t.Parallel()
	all := map[string]renamed{
		"cluster": {Storage: etcd.Cluster{Endpoints: []string{"http://" + listening(t)}, DialTimeout: patience}},
		"other":   {Storage: memory.Store{}, quiet: true},
	}
	for name, open := range storages() {
		all[name] = renamed{Storage: open(t.TempDir())}
	}
	for name, storage := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const size, times = 10 << 10, 20
			storage.engine = "figures-" + name
			begun := time.Now().Add(-time.Second)
			c := serving(t, storage, controlplane.PartFunc(func(p *controlplane.Plan) error { p.Feed(); return nil }))
			maps := c.CoreV1().ConfigMaps("default")
			if err := create(t, c, "a", ""); err != nil {
				t.Fatal(err)
			}
			for i := range times {
				cm := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": strings.Repeat(fmt.Sprint(i%10), size)},
				}
				if _, err := maps.Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			var got map[string]float64
			right := func() bool {
				when := got["last_compaction_timestamp_seconds"]
				lag, hasLag := got["watch_lag_revisions"]
				return got["history_bytes"] >= size*(times-1) && got["history_bytes"] < 10*size*times && got["file_bytes"] > 0 &&
					when >= float64(begun.Unix()) && when <= float64(time.Now().Unix()+1) && hasLag && lag == 0
			}
			for end := time.Now().Add(patience); !right() && time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				got = figuresOf(t, storage.engine)
			}
			if !right() {
				t.Errorf("metrics tell %v after %d updates of %d bytes", got, times, size)
			}
		})
	}
}

// figuresOf are the metrics of the storages that are called so.
func figuresOf(t *testing.T, engine string) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for _, m := range metricsOf(t, "sailplane_storage_") {
		if m.labels["engine"] == engine {
			got[strings.TrimPrefix(m.name, "sailplane_storage_")] = m.value
		}
	}
	return got
}

// metric is one metric of the process: of a histogram, how often something was measured.
type metric struct {
	name   string
	labels map[string]string
	value  float64
}

// metricsOf are those whose names begin so.
func metricsOf(t *testing.T, prefix string) []metric {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all []metric
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), prefix) {
			continue
		}
		for _, m := range f.Metric {
			one := metric{name: f.GetName(), labels: map[string]string{}}
			for _, l := range m.Label {
				one.labels[l.GetName()] = l.GetValue()
			}
			one.value = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all = append(all, one)
		}
	}
	return all
}
