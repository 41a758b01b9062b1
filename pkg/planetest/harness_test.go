package planetest_test

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// withWidgets is a plane that serves the widgets of config.
func withWidgets() controlplane.Part { return planetest.WithCRDs(os.DirFS("../../config/samples")) }

// few are parts of a plane that has what most tests here need.
func few() controlplane.Part {
	return controlplane.Parts{namespaces(), withWidgets()}
}

// failing is a test that may fail. It is not stopped by its own failures but by
// those of what it runs.
type failing struct {
	*testing.T
	mu       sync.Mutex
	messages []string
	cleanups []func()
}

func (f *failing) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.messages = append(f.messages, fmt.Sprintf(format, args...))
}

func (f *failing) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

func (f *failing) Cleanup(g func()) { f.cleanups = append(f.cleanups, g) }

// failure runs a test and returns what it failed with, "" when it passed.
func failure(t *testing.T, test func(t planetest.TB)) string {
	t.Helper()
	f := &failing{T: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := len(f.cleanups) - 1; i >= 0; i-- {
				f.cleanups[i]()
			}
		}()
		test(f)
	}()
	<-done
	return strings.Join(f.messages, "\n")
}

// impatient has a test fail because a plane that has little patience waited for
// nothing. On a busy machine the patience may be over before there was a look at
// anything: there is more of it then.
func impatient(t *testing.T, plane *planetest.Plane, test func(t planetest.TB, plane *planetest.Plane), wants ...string) {
	t.Helper()
	for patience := time.Second; ; patience *= 2 {
		got := failure(t, func(t planetest.TB) { test(t, plane.Within(patience)) })
		contains(t, got, "not after "+patience.String())
		if patience > 30*time.Second || !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(got, want) }) {
			contains(t, got, wants...)
			return
		}
	}
}

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in: %s", want, text)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
