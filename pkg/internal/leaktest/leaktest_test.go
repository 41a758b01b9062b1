package leaktest_test

import (
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

// TestCheck waits for goroutines longer than goleak does.
func TestCheck(t *testing.T) {
	check := leaktest.Check(t)
	ended := make(chan struct{})
	go func() {
		time.Sleep(time.Second)
		close(ended)
	}()
	check()
	select {
	case <-ended:
	default:
		t.Error("Check returned while a goroutine still runs")
	}
}
