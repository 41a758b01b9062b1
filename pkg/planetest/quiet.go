package planetest

import (
	"io"

	"k8s.io/klog/v2"
)

// Quiet has k8s.io libraries write only errors to the standard error: each plane
// that starts and stops is some 50 lines otherwise, from places that know no other
// logger than that of the process. It changes that logger, which nothing else here
// does: call it in TestMain, before any plane starts.
func Quiet() {
	// klog then writes to its output, but errors also to the standard error.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
}
