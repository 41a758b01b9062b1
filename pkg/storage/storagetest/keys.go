package storagetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// testKeyBytes writes every byte in a key, and all of them in every value. Names
// of some resources are any text without "/" and "%"; etcd takes every byte.
func testKeyBytes(t *testing.T, h *harness) {
	value := make([]byte, 256)
	for i := range value {
		value[i] = byte(i)
	}
	var keys []string
	begin := h.create(t, "/s", "before")
	for b := range 256 {
		keys = append(keys, "/t/x"+string([]byte{byte(b)}), "/t/x"+string([]byte{byte(b)})+"y")
	}
	keys = append(keys, "/t/ἀρχή", "/t/日本語", "/t/a b", "/t/system:node:a", `/t/'";--\`, "/t/%_*?[a-z]")
	for _, key := range keys {
		h.create(t, key, string(value))
	}
	h.create(t, "/u", "after")
	for i, e := range h.record(t, "/t/", begin, len(keys)) {
		if string(e.Kv.Key) != keys[i] || string(e.Kv.Value) != string(value) {
			t.Fatalf("event %d is of %q with %q, want %q with every byte", i, e.Kv.Key, e.Kv.Value, keys[i])
		}
	}
	slices.Sort(keys)
	expectSame(t, "list in pages", keys, h.keysInPages(t, "/t/", 50))
	for _, key := range keys {
		if r := h.refused(t, key, 0); r.KV == nil || string(r.KV.Key) != key {
			t.Fatalf("create %q again: got %+v, want what is there", key, r)
		}
		kv := h.get(t, key, 0).KV
		if kv == nil || string(kv.Key) != key || string(kv.Value) != string(value) {
			t.Fatalf("get %q: got %v", key, kv)
		}
		h.remove(t, key, kv.ModRevision)
	}
	if r := h.list(t, "/t/", kubernetes.ListOptions{}); len(r.Kvs) != 0 || r.Count != 0 {
		t.Errorf("list: got %v after everything was deleted", keysOf(r))
	}
}

// keysInPages lists the keys below a prefix, some at a time.
func (h *harness) keysInPages(t testing.TB, prefix string, limit int64) []string {
	t.Helper()
	var keys []string
	for page := range h.pages(t, prefix, limit) {
		keys = append(keys, keysOf(page)...)
	}
	return keys
}

// lookalikes returns keys that other sort orders, and patterns, confuse with
// each other.
func lookalikes() []string {
	return []string{
		"/t/", "/t/a", "/t/a/", "/t/a/1", "/t/a/2/3", "/t/a-b", "/t/a-b/1", "/t/a.b", "/t/a.b/1", "/t/a0/1",
		"/t/A/1", "/t/a_/1", "/t/a%/1", "/t/a*/1", "/t/ab", "/t/ab/1", "/t/a\xff/1", "/t/a\xff\xff", "/t/b", "/t/é", "/t/e",
		"/t/\x01", "/t/\xff", "/t/\xff\xff", "/t/\xff\xff/a",
	}
}

func testKeyOrder(t *testing.T, h *harness) {
	keys := lookalikes()
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(len(keys)) { // in no order
		h.create(t, keys[i], "1")
	}
	h.create(t, "/s", "before")
	h.create(t, "/u", "after")
	slices.Sort(keys)
	for _, limit := range []int64{0, 1, 7} {
		if diff := cmp.Diff(keys, h.keysInPages(t, "/t/", limit), cmp.Transformer("quoted", func(s string) string { return fmt.Sprintf("%q", s) })); diff != "" {
			t.Errorf("keys, %d at a time (-want +got):\n%s", limit, diff)
		}
	}
}

// testPrefixes lists, counts and watches below prefixes that are nearly the
// same as others.
func testPrefixes(t *testing.T, h *harness) {
	keys := lookalikes()
	begin := h.create(t, "/s", "before")
	for _, key := range keys {
		h.create(t, key, "1")
	}
	h.create(t, "/tt/a", "after")
	for _, prefix := range []string{
		"/t/", "/t/a", "/t/a/", "/t/a-b/", "/t/a.", "/t/a_", "/t/a%", "/t/a*", "/t/a\xff", "/t/A", "/t/\xff", "/t/\xff\xff", "/none/",
	} {
		t.Run(fmt.Sprintf("%q", prefix), func(t *testing.T) {
			var want, written []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) {
					written = append(written, key)
				}
			}
			want = append(want, written...)
			slices.Sort(want)
			expectSame(t, "list", want, keysOf(h.list(t, prefix, kubernetes.ListOptions{})))
			h.expectCount(t, prefix, len(want))
			var watched []string
			for _, e := range h.record(t, prefix, begin, len(want)) {
				watched = append(watched, string(e.Kv.Key))
			}
			expectSame(t, "watch", written, watched)
			end := clientv3.GetPrefixRangeEnd(prefix)
			r, err := h.client.KV.Get(t.Context(), prefix, clientv3.WithRange(end), clientv3.WithLimit(1))
			if err != nil || len(r.Kvs) != min(1, len(want)) || r.Count != int64(len(want)) || r.More != (len(want) > 1) {
				t.Errorf("one of %d: got %v, %v", len(want), r, err)
			}
		})
	}
}
