package stress

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// upstreamLeaks are goroutines of libraries that outlive the server that
// started them by a moment, end by themselves, and cannot be waited for. None is ours.
func upstreamLeaks() []goleak.Option {
	return []goleak.Option{
		// Every read that must be as fresh as a revision starts a timer of 3 s,
		// which nothing stops when the read is done.
		// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/watch_cache.go#L341
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// The worker is started and not waited for, and its requests have no
		// context: one that was told to try again does so, once, in vain.
		// https://github.com/kubernetes/kube-aggregator/blob/v0.37.2/pkg/controllers/autoregister/autoregister_controller.go#L163
		goleak.IgnoreAnyFunction("k8s.io/kube-aggregator/pkg/controllers/autoregister.(*autoRegisterController).runWorker"),
	}
}

// patience is how long goroutines that were told to end may take on a busy machine.
const patience = 2 * time.Minute

// noLeak returns a function that fails the test when goroutines were left since.
func noLeak(tb testing.TB) func() {
	return noLeakBut(tb, append(upstreamLeaks(), goleak.IgnoreCurrent())...)
}

// noLeakAtAll is noLeak that gives what libraries left the time to end, and
// ignores nothing.
func noLeakAtAll(tb testing.TB) func() { return noLeakBut(tb, goleak.IgnoreCurrent()) }

func noLeakBut(tb testing.TB, ignored ...goleak.Option) func() {
	return func() {
		tb.Helper()
		end := time.Now().Add(patience)
		for {
			err := goleak.Find(ignored...)
			if err == nil {
				return
			}
			if time.Now().After(end) {
				tb.Errorf("goroutines were left: %s", head(err.Error()))
				return
			}
		}
	}
}

func head(s string) string {
	if len(s) > 4000 {
		return s[:4000] + "..."
	}
	return s
}
