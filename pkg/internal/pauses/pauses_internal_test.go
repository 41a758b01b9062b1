package pauses

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestHold: refusals come after a pause, those beyond what is held and of requests that end
// at once, and nothing is left of them.
func TestHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const each, all = 3, 10
		p := New(each, all)
		took := func(ctx context.Context, name string) time.Duration {
			begin := time.Now()
			p.Hold(ctx, name)
			return time.Since(begin)
		}
		if got := took(t.Context(), "ann"); got != Length {
			t.Errorf("a refusal is held back for %v, want %v", got, Length)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		if got := took(ended, "ann"); got != 0 {
			t.Errorf("the refusal of a request that ended is held back for %v, want 0s", got)
		}
		var held sync.WaitGroup
		for range each {
			held.Go(func() { p.Hold(t.Context(), "ann") })
		}
		synctest.Wait()
		if got := took(t.Context(), "ann"); got != 0 {
			t.Errorf("with %d held for the user, one more is held back for %v, want 0s", each, got)
		}
		if got := took(t.Context(), "bob"); got != Length {
			t.Errorf("another user's refusal is held back for %v, want %v", got, Length)
		}
		for i := range all {
			held.Go(func() { p.Hold(t.Context(), fmt.Sprint("user ", i)) })
		}
		synctest.Wait()
		if got := took(t.Context(), "bob"); got != 0 {
			t.Errorf("with %d held, one more is held back for %v, want 0s", all, got)
		}
		held.Wait()
		if len(p.held) > 0 || p.all > 0 {
			t.Errorf("after the pauses, %d callers and %d refusals are counted, want none", len(p.held), p.all)
		}
	})
}
