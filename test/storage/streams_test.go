package storage

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// TestStreams: the lists that fill watch caches are streams (KEP-5966) on every storage,
// an etcd that is older among them, and the metric of API servers tells so.
func TestStreams(t *testing.T) { // alone: the metric is the process'
	all := map[string]controlplane.Storage{
		"cluster": etcd.Cluster{Endpoints: []string{"http://" + listening(t)}, DialTimeout: patience},
	}
	for name, open := range storages() {
		all[name] = open(t.TempDir())
	}
	if !testing.Short() {
		for _, older := range []string{"etcd35", "etcd36"} {
			all[older] = etcd.Cluster{Endpoints: []string{serve(t, build(t, older), t.TempDir())}, DialTimeout: patience}
		}
	}
	for name, storage := range all {
		t.Run(name, func(t *testing.T) {
			streamed, others := listsOf(t, "listStream"), listsOf(t, "list")
			c := serving(t, storage)
			if err := create(t, c, "a", ""); err != nil {
				t.Fatal(err)
			}
			if err := list(t, c); err != nil {
				t.Fatal(err)
			}
			if listsOf(t, "listStream") == streamed || listsOf(t, "list") != others {
				t.Errorf("%d lists of ConfigMaps were streams and %d were not, want one and none",
					listsOf(t, "listStream")-streamed, listsOf(t, "list")-others)
			}
		})
	}
}

// listsOf is how many lists of ConfigMaps a storage was asked for in one of two ways.
func listsOf(t *testing.T, operation string) (n int) {
	t.Helper()
	for _, m := range metricsOf(t, "etcd_requests_total") {
		if m.labels["operation"] == operation && m.labels["resource"] == "configmaps" {
			n += int(m.value)
		}
	}
	return n
}
