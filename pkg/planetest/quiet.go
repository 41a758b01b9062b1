package planetest

import (
	"io"

	"k8s.io/klog/v2"
)

// Quiet makes k8s.io libraries write only errors to the standard error: otherwise
// each plane writes some 50 lines, from code that only knows the logger of the
// process. Quiet changes that logger, which nothing else here does: call it in
// TestMain, before any plane starts.
func Quiet() {
	// klog then writes to its output, but errors also to the standard error.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}
