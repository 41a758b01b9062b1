// Package leaktest makes tests fail if they leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines that were told to end may take: goleak alone
// gives them less than half a second, in which a busy machine may not run them.
// Some goroutines of upstream poll whether their server is gone, every second or
// two.
const patience = 30 * time.Second

// Run runs the tests of a package, for its TestMain to exit with the code.
func Run(m *testing.M, ignored ...goleak.Option) (code int) {
	if code = m.Run(); code != 0 {
		return code
	}
	if err := find(ignored); err != nil {
		fmt.Fprintf(os.Stderr, "the tests passed, but left goroutines: %v\n", err)
		return 1
	}
	return 0
}

// Check returns a function that fails the test if there are goroutines that did not
// exist when Check was called.
func Check(t testing.TB, ignored ...goleak.Option) func() {
	t.Helper()
	ignored = append(ignored, goleak.IgnoreCurrent())
	return func() {
		t.Helper()
		if err := find(ignored); err != nil {
			t.Error(err)
		}
	}
}

func find(ignored []goleak.Option) (err error) {
	// A list that waited for the watch cache leaves a timer for the rest of its 3 s.
	// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/watch_cache.go#L341
	ignored = append(ignored,
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"),
		// The first health check of the process, and it is never stopped.
		// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/healthz/healthz.go#L80
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/server/healthz.(*log).Check.func1.1"),
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever"))
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if err = goleak.Find(ignored...); err == nil {
			return nil
		}
	}
	return err
}
