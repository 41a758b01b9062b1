package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// TestDrained: a watch that is stopped with an event on its way ends, and so does
// its goroutine, which TestMain looks for.
func TestDrained(t *testing.T) {
	t.Parallel()
	stored := watch.NewFake()
	w := drained{watch.Filter(stored, func(e watch.Event) (watch.Event, bool) { return e, true })}
	stored.Add(&corev1.Event{}) // the filter has it now, and nobody takes it
	w.Stop()
	for range w.ResultChan() {
	}
}
