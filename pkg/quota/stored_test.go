package quota_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

const large = 10_000

// largeMap creates a ConfigMap of so many bytes.
func (p *plane) largeMap(ctx context.Context, name string, bytes int, finalizers ...string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}, Data: map[string]string{"x": strings.Repeat("x", bytes)}}
	_, err := p.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
	return err
}

// resize replaces what a ConfigMap has.
func (p *plane) resize(ctx context.Context, name string, bytes int) error {
	patch := fmt.Appendf(nil, `{"data":{"x":%q}}`, strings.Repeat("y", bytes))
	_, err := p.CoreV1().ConfigMaps("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// usedBytes is what the quota says of stored bytes.
func (p *plane) usedBytes(t *testing.T) int64 { t.Helper(); return p.used(t)[quota.StoredBytes] }

// TestStoredBytes: a create counts whole, an update by what it adds, and what gets smaller or goes makes room.
func TestStoredBytes(t *testing.T) {
	onEveryStorage(t, settle, func(t *testing.T, p *plane) {
		ctx := t.Context()
		if err := p.largeMap(ctx, "before", large); err != nil {
			t.Fatal(err)
		}
		p.limitTo(t, map[corev1.ResourceName]string{quota.StoredBytes: "48k"})
		start := p.usedBytes(t)
		if start < large {
			t.Errorf("used %d, with an object of %d", start, large)
		}
		for i := range 2 {
			if err := p.largeMap(ctx, fmt.Sprint("c", i), large, "example.com/wait", "example.com/wait-too"); err != nil {
				t.Fatal(err)
			}
		}
		const over = " is forbidden: exceeded quota: q, requested: sailplane.dev/stored-bytes="
		refused := func(reason string, err error) {
			t.Helper()
			if err == nil || !strings.HasPrefix(err.Error(), "configmaps \"") || !strings.Contains(err.Error(), over) {
				t.Errorf("%s: got error %v, want ...%s", reason, err, over)
			}
		}
		refused("an object that does not fit", p.largeMap(ctx, "more", 2*large))
		refused("an object that grows too much", p.resize(ctx, "c0", 3*large))
		before := p.usedBytes(t)
		if err := p.resize(ctx, "c0", large+5000); err != nil {
			t.Errorf("an object that grows: %v", err)
		}
		if n := p.usedBytes(t) - before; n < 4000 || n > 6000 {
			t.Errorf("it added %d, want about 5000", n)
		}
		if err := p.resize(ctx, "c1", 10); err != nil {
			t.Errorf("an object that gets smaller: %v", err)
		}
		until(t, "it makes room", func() bool { return p.largeMap(ctx, "more", 2*large-500) == nil })
		refused("the room is used", p.largeMap(ctx, "again", large))
		// A delete stores the time of the deletion, and who removes a finalizer is noted.
		if err := p.CoreV1().ConfigMaps("default").Delete(ctx, "c0", metav1.DeleteOptions{}); err != nil {
			t.Errorf("a delete: %v", err)
		}
		for _, left := range []string{`["example.com/wait"]`, `[]`} {
			patch := fmt.Appendf(nil, `{"metadata":{"finalizers":%s}}`, left)
			if _, err := p.CoreV1().ConfigMaps("default").Patch(ctx, "c0", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Errorf("a finalizer is removed: %v", err)
			}
		}
		until(t, "what is gone makes room", func() bool { return p.largeMap(ctx, "again", large) == nil })
	})
}

// TestManyWritersOfBytes: of clients that create, grow, shrink and delete at once, never more is stored than there
// is room for, and in the end the status is true.
func TestManyWritersOfBytes(t *testing.T) {
	onEveryStorage(t, settle, func(t *testing.T, p *plane) {
		const room = 20
		p.limitTo(t, map[corev1.ResourceName]string{quota.StoredBytes: fmt.Sprint(room * large)})
		var created, late atomic.Int64
		write := func(write func() error) bool {
			err := write()
			switch {
			case err == nil:
				return true
			case isLate(err):
				late.Add(1)
			case !strings.Contains(err.Error(), "exceeded quota"):
				t.Error(err)
			}
			return false
		}
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if write(func() error { return p.largeMap(t.Context(), fmt.Sprint("w-", i), large) }) {
					created.Add(1)
				}
			})
		}
		all.Wait()
		// Each takes a little more than its data, and what is there before takes some.
		if n, late := created.Load(), late.Load(); n >= room || n+late < room-3 {
			t.Errorf("%d were created, and %d were late, want nearly %d", n, late, room)
		}
		for i := range 8 {
			all.Go(func() {
				for j := range 6 {
					name := fmt.Sprint("w-", i*5)
					if !write(func() error { return p.largeMap(t.Context(), fmt.Sprint("x-", i, "-", j), large/2) }) {
						_ = p.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprint("w-", i*5+j%5), metav1.DeleteOptions{})
						continue
					}
					// Two clients write the same object: conflicts are tried again.
					_ = p.resize(t.Context(), name, large/10*(1+j))
					p.fits(t, room*large)
				}
			})
		}
		all.Wait()
		p.fits(t, room*large)
		until(t, "the status is true in the end", func() bool { return p.usedBytes(t) == p.there() })
	})
}

// there is what the feed has of the namespace.
func (p *plane) there() int64 {
	sum := int64(0)
	for resource, total := range p.feed.Counts("default") {
		if resource != corev1.Resource("resourcequotas") {
			sum += total.Bytes
		}
	}
	return sum
}

// fits tells whether the namespace has no more than it may.
func (p *plane) fits(t *testing.T, most int64) {
	t.Helper()
	if n := p.there(); n > most {
		t.Errorf("the namespace has %d bytes, the limit is %d", n, most)
	}
}

// TestLeftBytes: what was reserved for an object that exists already is free at once.
func TestLeftBytes(t *testing.T) {
	p := start(t, memory.Store{}, settle)
	p.limitTo(t, map[corev1.ResourceName]string{quota.StoredBytes: "100k"})
	if err := p.largeMap(t.Context(), "a", 10); err != nil {
		t.Fatal(err)
	}
	before := p.usedBytes(t)
	if err := p.largeMap(t.Context(), "a", large); err == nil {
		t.Fatal("an object was created twice")
	}
	until(t, "the reservation is gone", func() bool { return p.usedBytes(t) == before })
}
