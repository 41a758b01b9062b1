package planetest

import "context"

// TB is what the package needs of a test. *testing.T, *testing.B and *testing.F
// have it, and so does what GinkgoT() of github.com/onsi/ginkgo/v2 returns. Fatalf
// ends the goroutine that calls it.
type TB interface {
	Helper()
	Name() string
	TempDir() string
	Cleanup(f func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// contextOf is the context of a test, if it has one.
func contextOf(t TB) context.Context {
	if c, ok := t.(interface{ Context() context.Context }); ok {
		return c.Context()
	}
	return context.Background()
}
