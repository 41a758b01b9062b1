package signal_test

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

// TestChange: all who wait are told of the next change, and of no earlier one.
func TestChange(t *testing.T) {
	t.Parallel()
	var c signal.Change
	c.Announce()
	one, two := c.Next(), c.Next()
	for _, next := range []<-chan struct{}{one, two} {
		select {
		case <-next:
			t.Error("a change from before was told")
		default:
		}
	}
	c.Announce()
	<-one
	<-two
	select {
	case <-c.Next():
		t.Error("a change was told twice")
	default:
	}
}
