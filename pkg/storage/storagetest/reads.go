package storagetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

func testMissingKeys(t *testing.T, h *harness) {
	revision := h.create(t, "/other", "1")
	if r := h.get(t, "/t/none", 0); r.KV != nil || r.Revision < revision {
		t.Errorf("get: got %+v, want nothing at revision %d or later", r, revision)
	}
	if r := h.list(t, "/t/", kubernetes.ListOptions{}); len(r.Kvs) != 0 || r.Count != 0 || r.Revision < revision {
		t.Errorf("list: got %+v, want nothing at revision %d or later", r, revision)
	}
	if put := h.refused(t, "/t/none", revision); put.KV != nil {
		t.Errorf("update: got %+v, want nothing there", put)
	}
	del, err := h.client.OptimisticDelete(t.Context(), "/t/none", revision, kubernetes.DeleteOptions{GetOnFailure: true})
	if err != nil || del.Succeeded || del.KV != nil {
		t.Errorf("delete: got %+v, %v, want a refusal", del, err)
	}
}

func testPages(t *testing.T, h *harness) {
	const keys, limit = 25, 10
	for i := range keys {
		h.create(t, fmt.Sprintf("/t/%03d", i), fmt.Sprint(i))
	}
	h.create(t, "/u", "after the prefix")
	var got, want []string
	for page := range h.pages(t, "/t/", limit) {
		if len(got) == 0 {
			if len(page.Kvs) != limit || page.Count != keys {
				t.Fatalf("first page: got %d of %d keys, want %d of %d", len(page.Kvs), page.Count, limit, keys)
			}
			// Changes between pages are not seen: all pages are read at one
			// revision.
			h.remove(t, "/t/020", h.get(t, "/t/020", 0).KV.ModRevision)
			h.create(t, "/t/0205", "new")
		}
		for _, kv := range page.Kvs {
			got = append(got, string(kv.Key)+"="+string(kv.Value))
		}
	}
	for i := range keys {
		want = append(want, fmt.Sprintf("/t/%03d=%d", i, i))
	}
	expectSame(t, "pages", want, got)
	h.expectCount(t, "/t/", keys)
}

// testStreams compares streams (KEP-5966) with ranges, and checks that a stream stays
// at its revision while others write.
func testStreams(t *testing.T, h *harness) {
	const keys = 1500 // more than any first chunk has
	var old int64
	for i := range keys {
		old = h.create(t, fmt.Sprintf("/t/%04d", i), fmt.Sprint(i))
	}
	h.create(t, "/u", "after the prefix")
	h.update(t, "/t/0007", "new", h.get(t, "/t/0007", 0).KV.ModRevision)
	for name, opts := range map[string][]clientv3.OpOption{
		"all":         nil,
		"a few":       {clientv3.WithLimit(10)},
		"as many":     {clientv3.WithLimit(keys)},
		"before":      {clientv3.WithRev(old)},
		"keys only":   {clientv3.WithKeysOnly()},
		"count only":  {clientv3.WithCountOnly()},
		"nothing yet": {clientv3.WithRev(old), clientv3.WithLimit(1)},
	} {
		opts = append(opts, clientv3.WithRange(clientv3.GetPrefixRangeEnd("/t/")))
		want, err := h.client.KV.Get(t.Context(), "/t/", opts...)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := h.client.KV.GetStream(t.Context(), "/t/", opts...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := clientv3.GetStreamToGetResponse(stream)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got.Header.GetRevision() < want.Header.GetRevision() || got.Count != want.Count || got.More != want.More {
			t.Errorf("%s: revision %d, count %d, more %v, want %d, %d, %v", name,
				got.Header.GetRevision(), got.Count, got.More, want.Header.GetRevision(), want.Count, want.More)
		}
		expectSame(t, name+", as a stream beside a range", texts(want.Kvs), texts(got.Kvs))
	}
	stream, err := h.client.KV.GetStream(t.Context(), "/t/", clientv3.WithRange(clientv3.GetPrefixRangeEnd("/t/")))
	if err != nil {
		t.Fatal(err)
	}
	first := <-stream
	if first.Err() != nil {
		t.Fatal(first.Err())
	}
	last := fmt.Sprintf("/t/%04d", keys-1)
	h.remove(t, last, h.get(t, last, 0).KV.ModRevision)
	rest, err := clientv3.GetStreamToGetResponse(stream)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(first.Kvs) + len(rest.Kvs); n != keys {
		t.Errorf("a stream has %d keys, and there were %d when it began", n, keys)
	}
}

func texts(kvs []*mvccpb.KeyValue) []string {
	var all []string
	for _, kv := range kvs {
		all = append(all, fmt.Sprintf("%s=%s at %d", kv.Key, kv.Value, kv.ModRevision))
	}
	return all
}

func testOldRevisions(t *testing.T, h *harness) {
	one := h.create(t, "/t/a", "1")
	two := h.update(t, "/t/a", "2", one)
	gone := h.remove(t, "/t/a", two)
	for revision, want := range map[int64]string{one: "1", two: "2"} {
		if kv := h.get(t, "/t/a", revision).KV; kv == nil || string(kv.Value) != want {
			t.Errorf("get at %d: got %v, want %s", revision, kv, want)
		}
		r := h.list(t, "/t/", kubernetes.ListOptions{Revision: revision})
		if len(r.Kvs) != 1 || string(r.Kvs[0].Value) != want || r.Revision < gone {
			t.Errorf("list at %d: got %v with revision %d, want %s with the current one", revision, r.Kvs, r.Revision, want)
		}
	}
	if kv := h.get(t, "/t/a", gone).KV; kv != nil {
		t.Errorf("get at %d: got %v, want nothing", gone, kv)
	}
	_, err := h.client.Kubernetes.Get(t.Context(), "/t/a", kubernetes.GetOptions{Revision: gone + 1000})
	expectError(t, "get in the future", err, rpctypes.ErrFutureRev)
}

// testEmptyLists lists an empty prefix while the first key is created: the list
// has it, or a watch from the revision of the list does.
func testEmptyLists(t *testing.T, h *harness) {
	for round := range 25 {
		prefix := fmt.Sprintf("/t/%d/", round)
		var writer sync.WaitGroup
		writer.Go(func() { h.create(t, prefix+"first", "1") })
		r := h.list(t, prefix, kubernetes.ListOptions{})
		writer.Wait()
		if len(r.Kvs) == 0 {
			h.watch(t, prefix, r.Revision+1).events(t, 1)
		}
		writer.Go(func() { h.create(t, prefix+"second", "1") })
		got := h.get(t, prefix+"second", 0)
		writer.Wait()
		if got.KV == nil {
			h.watch(t, prefix+"second", got.Revision+1).events(t, 1)
		}
	}
}

// testReads reads as API servers do: the newest state, one not older than a
// given revision, and the state at a revision.
func testReads(t *testing.T, h *harness) {
	other := h.other(t)
	revision := h.create(t, "/t/a", "0")
	for i := range 50 {
		before := revision
		revision = h.update(t, "/t/a", fmt.Sprint(i+1), revision)
		newest := other.list(t, "/t/", kubernetes.ListOptions{})
		if newest.Revision < revision || len(newest.Kvs) != 1 || newest.Kvs[0].ModRevision != revision {
			t.Fatalf("newest: got %v at %d, want revision %d, which another client wrote", newest.Kvs, newest.Revision, revision)
		}
		if kv := other.get(t, "/t/a", 0).KV; kv == nil || kv.ModRevision != revision {
			t.Fatalf("newest: got %v, want revision %d, which another client wrote", kv, revision)
		}
		for at, want := range map[int64]string{before: fmt.Sprint(i), revision: fmt.Sprint(i + 1)} {
			exact := other.list(t, "/t/", kubernetes.ListOptions{Revision: at})
			if len(exact.Kvs) != 1 || string(exact.Kvs[0].Value) != want || exact.Kvs[0].ModRevision != at {
				t.Fatalf("exactly at %d: got %v, want %s", at, exact.Kvs, want)
			}
		}
		_, err := other.client.List(t.Context(), "/t/", kubernetes.ListOptions{Revision: revision + 1})
		if !errors.Is(err, rpctypes.ErrFutureRev) {
			t.Fatalf("at least and exactly a revision that is yet to come: got %v, want %v", err, rpctypes.ErrFutureRev)
		}
	}
}

// testPagesCompacted compacts between two pages: the next one is refused, and
// API servers continue from the same key with the newest state.
func testPagesCompacted(t *testing.T, h *harness) {
	const keys, limit = 10, 4
	for i := range keys {
		h.create(t, fmt.Sprintf("/t/%03d", i), "1")
	}
	first := h.list(t, "/t/", kubernetes.ListOptions{Limit: limit})
	removed := h.remove(t, "/t/005", h.get(t, "/t/005", 0).KV.ModRevision)
	from := string(first.Kvs[limit-1].Key) + "\x00"
	next := h.list(t, "/t/", kubernetes.ListOptions{Limit: limit, Continue: from, Revision: first.Revision})
	if got := fmt.Sprint(keysOf(next)); got != "[/t/004 /t/005 /t/006 /t/007]" {
		t.Errorf("second page: got %s, want the keys at the revision of the first", got)
	}
	h.compact(t, removed)
	_, err := h.client.List(t.Context(), "/t/", kubernetes.ListOptions{Limit: limit, Continue: from, Revision: first.Revision})
	expectError(t, "page at a compacted revision", err, rpctypes.ErrCompacted)
	next = h.list(t, "/t/", kubernetes.ListOptions{Limit: limit, Continue: from})
	if got := fmt.Sprint(keysOf(next)); got != "[/t/004 /t/006 /t/007 /t/008]" || next.Count != 5 {
		t.Errorf("newest page: got %s of %d, want 4 of the 5 keys that are left", got, next.Count)
	}
}

func keysOf(r kubernetes.ListResponse) []string {
	var keys []string
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}
