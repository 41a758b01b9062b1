package storagetest

import (
	"bytes"
	"fmt"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
)

func testValuesAreCopies(t *testing.T, h *harness) {
	first := h.create(t, "/t/a", "value")
	spoil := func(b []byte) {
		for i := range b {
			b[i] = 'x'
		}
	}
	spoil(h.get(t, "/t/a", 0).KV.Value)
	spoil(h.list(t, "/t/", kubernetes.ListOptions{}).Kvs[0].Value)
	e := h.watch(t, "/t/", first).events(t, 1)[0]
	spoil(e.Kv.Value)
	second := h.update(t, "/t/a", "other", first)
	spoil(h.watch(t, "/t/", second).events(t, 1)[0].PrevKv.Value)
	if got := string(h.get(t, "/t/a", first).KV.Value); got != "value" {
		t.Errorf("a reader changed the stored value to %q", got)
	}
}

// testSizes stores values from empty ones to the largest that API servers send:
// etcd takes 1.5 MiB in a request unless told otherwise.
func testSizes(t *testing.T, h *harness) {
	w := h.watch(t, "/t/", h.create(t, "/t/first", "1")+1)
	for name, size := range map[string]int{
		"nothing": 0, "one byte": 1, "a page": 4096, "1 MiB": 1 << 20, "nearly 1.5 MiB": 1536<<10 - 8<<10,
	} {
		t.Run(name, func(t *testing.T) {
			one, two := make([]byte, size), bytes.Repeat([]byte{0xfe}, size)
			for i := range one {
				one[i] = byte(i * 7)
			}
			key := fmt.Sprintf("/t/%d", size)
			same := func(what string, want, got []byte) {
				t.Helper()
				if !bytes.Equal(want, got) {
					t.Errorf("%s: got %d bytes, want the %d that were written", what, len(got), len(want))
				}
			}
			first := h.create(t, key, string(one))
			same("get", one, h.get(t, key, 0).KV.Value)
			second := h.update(t, key, string(two), first)
			same("list", two, h.list(t, key, kubernetes.ListOptions{}).Kvs[0].Value)
			same("list of an old revision", one, h.list(t, key, kubernetes.ListOptions{Revision: first}).Kvs[0].Value)
			refused := h.refused(t, key, first)
			if refused.KV == nil {
				t.Fatalf("refused write: got %+v, want what is there", refused)
			}
			same("refused write", two, refused.KV.Value)
			events := w.events(t, 1)
			if len(events) < 2 {
				events = append(events, w.events(t, 1)...)
			}
			same("event of the first", one, events[0].Kv.Value)
			same("event of the second", two, events[1].Kv.Value)
			same("what was before the second", one, events[1].PrevKv.Value)
			h.remove(t, key, second)
			same("what was deleted", two, w.events(t, 1)[0].PrevKv.Value)
		})
	}
}
