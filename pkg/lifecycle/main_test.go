package lifecycle_test

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// A list that waited for the watch cache leaves a timer of 3 s behind,
		// which ends by itself: cacher/watch_cache.go, blockTimeout.
		goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshAndBlock.func2"))
}
