package quota

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
)

// TestUnsettled: a count does not take for settled what was reserved while the
// informer was behind.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	k := key{"default", "q"}
	cases := map[string]struct {
		reason   string
		versions []string // as it is read, one after the other
		want     bool     // of the last
	}{
		"noticed":   {reason: "the last reservation is old", versions: []string{"4"}},
		"own":       {reason: "nobody wrote after the count", versions: []string{"5"}},
		"unnoticed": {reason: "there is a reservation that the informer did not tell of yet", versions: []string{"6"}, want: true},
		"both":      {reason: "which waits on after the count wrote", versions: []string{"6", "5"}, want: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &state{written: "5", noticed: "4", reserved: time.Now().Add(-2 * time.Hour)}
			c := &counter{settle: time.Hour, quotas: map[string]map[string]*state{k.namespace: {k.name: s}}}
			got := false
			for _, version := range tc.versions {
				got = c.unsettled(k, version) > 0
			}
			if got != tc.want {
				t.Errorf("%s: unsettled is %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// TestMeasured: what was reserved by a Service that is not there yet stays, unless
// another made room.
func TestMeasured(t *testing.T) {
	t.Parallel()
	_, client := planeWith(t, core.Services{})
	c := &counter{core: client.CoreV1()}
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{Used: list("services.nodeports", "2")}}
	q.Namespace = "default"
	changed := freed{changed: map[schema.GroupResource]bool{corev1.Resource("services"): true}}
	for name, tc := range map[string]struct {
		reason string
		seen   snapshot
		want   int64
	}{
		"reserved": {reason: "the Service may come", seen: snapshot{unsettled: time.Hour}, want: 2},
		"changed":  {reason: "a Service has fewer ports", seen: snapshot{unsettled: time.Hour, freed: changed}},
		"settled":  {reason: "the Service did not come"},
	} {
		got, err := c.amount(t.Context(), q, corev1.ResourceServicesNodePorts, tc.seen)
		if err != nil || got.Value() != tc.want {
			t.Errorf("%s: %s: got %v, %v, want %d", name, tc.reason, got.String(), err, tc.want)
		}
	}
}

// TestLate: a refusal is not final while the informer has not seen the quota as it is.
func TestLate(t *testing.T) {
	t.Parallel()
	quota := func(version string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "q", ResourceVersion: version}}
	}
	for seen, want := range map[string]bool{"5": false, "4": true, "": true} {
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
		if seen != "" {
			if err := indexer.Add(quota(seen)); err != nil {
				t.Fatal(err)
			}
		}
		p := &plugin{client: fake.NewClientset(quota("5")), quotas: corelisters.NewResourceQuotaLister(indexer)}
		if got := p.late(t.Context(), "shop"); got != want {
			t.Errorf("with version %q seen, late is %t, want %t", seen, got, want)
		}
	}
}
