package federation

import (
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/storm"
)

// TestStorm is a short run of what `make soak` does for an hour.
func TestStorm(t *testing.T) {
	t.Parallel()
	failed, err := storm.Run(t.Context(), storm.Options{
		Programs: programs(t), Dir: t.TempDir(), Out: t.Output(), For: 15 * time.Second, Every: 5 * time.Second,
		Longest: 2 * time.Second, Slowest: patience, Again: patience, Settle: patience,
	})
	must(t, err)
	if failed {
		t.Error("something is wrong: see above")
	}
}
