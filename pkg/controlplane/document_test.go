package controlplane

import (
	"runtime"
	"testing"
)

// TestDocumentsAreSharedByServers: the same API values have one cache in the
// process, others have their own, and none outlives its servers.
func TestDocumentsAreSharedByServers(t *testing.T) {
	a, b := NewAPI("a.example.com", []string{"v1"}, APIConfig{}), NewAPI("b.example.com", []string{"v1"}, APIConfig{})
	plan := func(apis ...*API) *Plan {
		p := &Plan{}
		for _, api := range apis {
			p.Serve(api)
		}
		return p
	}
	registry := documentCaches()
	first := registry.of(plan(a, b))
	if registry.of(plan(a, b)) != first {
		t.Error("two servers of the same APIs have two caches")
	}
	if registry.of(plan(a)) == first || registry.of(plan(a, NewAPI("b.example.com", []string{"v1"}, APIConfig{}))) == first {
		t.Error("servers of different APIs have one cache")
	}
	runtime.KeepAlive(first) // and not after it
	runtime.GC()
	registry.mu.Lock()
	var gone []string // others may go at any time
	for key, kept := range registry.inUse {
		if kept.Value() == nil {
			gone = append(gone, key)
		}
	}
	registry.mu.Unlock()
	if len(gone) == 0 {
		t.Error("no cache is gone")
	}
	last := registry.of(plan(NewAPI("c.example.com", []string{"v1"}, APIConfig{}))) // sweeps
	defer runtime.KeepAlive(last)
	registry.mu.Lock()
	defer registry.mu.Unlock()
	for _, key := range gone {
		if _, ok := registry.inUse[key]; ok {
			t.Errorf("the cache of %q is gone, its entry is not", key)
		}
	}
}
