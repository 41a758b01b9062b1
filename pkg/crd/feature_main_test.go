package crd_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain looks for goroutines that outlive their servers. The storage of a CRD
// that was changed or deleted ends a second after it, which goleak alone does
// not wait for.
// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.36.6/pkg/apiserver/customresource_handler.go#L570
func TestMain(m *testing.M) {
	code := m.Run()
	// A list that waited for the watch cache leaves a timer behind, which ends by itself after 3 s.
	timer := goleak.IgnoreAnyFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshAndBlock.func2")
	leaks := goleak.Find(timer)
	for end := time.Now().Add(3 * time.Second); leaks != nil && time.Now().Before(end); {
		leaks = goleak.Find(timer)
	}
	if code == 0 && leaks != nil {
		fmt.Fprintln(os.Stderr, leaks)
		code = 1
	}
	os.Exit(code)
}
