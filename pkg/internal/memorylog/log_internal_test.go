package memorylog

import (
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
				if _, err := l.Append(t.Context(), []revision.Change{{Key: key, Value: []byte("v"), Expect: revision.AnyRevision}}); err != nil {
					t.Fatal(err)
				}
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
