package memorylog

import (
	"fmt"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// TestChangesGoOn: whoever asks again from where the last answer ended comes to the newest
// revision, also of a log that is empty, whose first revision has no event. A watch would ask
// for ever otherwise.
func TestChangesGoOn(t *testing.T) {
	t.Parallel()
	l := newLog(func(int64, []*revision.Event, int64) {}, 1<<20, 1)
	all := revision.Span{Key: "a", End: "z"}
	for _, write := range []bool{false, true} {
		if write {
			for _, key := range []string{"b", "zz"} { // the last one is not of the span
				put(t, l, key)
			}
		}
		for at := int64(0); at < l.current(); {
			_, through, err := l.Changes(t.Context(), all, at)
			if err != nil {
				t.Fatal(err)
			}
			if through <= at {
				t.Fatalf("changes after %d of %d go up to %d", at, l.current(), through)
			}
			at = through
		}
	}
}

// TestPages: who reads a list in pages is told how many keys follow, as of the revision of the first page,
// and only that one has them counted.
func TestPages(t *testing.T) {
	t.Parallel()
	const keys, limit = 10, 3
	l := newLog(func(int64, []*revision.Event, int64) {}, 1<<20, 1)
	for i := range keys {
		put(t, l, fmt.Sprint("b", i))
	}
	at := l.current()
	q := revision.Query{Span: revision.Span{Key: "a", End: "z"}, Revision: at, Limit: limit}
	for left := int64(keys); left > 0; left -= limit {
		_, _, counted, err := l.find(q)
		if first := left == keys; err != nil || counted != first {
			t.Errorf("with %d left it counts %t, %v", left, counted, err)
		}
		page, err := l.Range(t.Context(), q)
		if err != nil || page.Count != left || int64(len(page.KVs)) != min(left, limit) {
			t.Fatalf("with %d left the page has %d of %d, %v", left, len(page.KVs), page.Count, err)
		}
		put(t, l, "c") // no key of that revision, and later ones count it once
		q.Key = page.KVs[len(page.KVs)-1].Key + "\x00"
	}
	if page, err := l.Range(t.Context(), revision.Query{Span: revision.Span{Key: "a", End: "z"}, Limit: 1}); err != nil || page.Count != keys+1 {
		t.Errorf("later there are %d, %v", page.Count, err)
	}
}

func put(t *testing.T, l *log, key string) {
	t.Helper()
	if _, err := l.Append(t.Context(), []revision.Change{{Key: key, Value: []byte("v"), Expect: revision.AnyRevision}}); err != nil {
		t.Fatal(err)
	}
}
