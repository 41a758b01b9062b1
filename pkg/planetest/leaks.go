package planetest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"runtime/pprof"
	"slices"
	"strings"
	"time"
)

// tag marks the goroutines of one plane. Goroutines inherit the profiler labels
// of the one that starts them, so a plane's can be told from those of the test,
// of other planes and of libraries, however many run at the same time.
type tag struct{ name string }

// tagKey is the key of the label.
const tagKey = "planetest"

// run calls f with the tag.
func (g tag) run(ctx context.Context, f func(context.Context)) {
	pprof.Do(ctx, pprof.Labels(tagKey, g.name), f)
}

// wrap serves requests with the tag: what they start lazily, such as the
// storage of a new custom resource, belongs to the plane and not to the client.
func (g tag) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.run(r.Context(), func(context.Context) { next.ServeHTTP(w, r) })
	})
}

// outlive are functions of libraries whose goroutines outlive the server that
// started them by a moment, end by themselves, and cannot be waited for.
func outlive() []string {
	return []string{
		// Every read that must be as fresh as a revision starts a timer of 3 s,
		// which nothing stops when the read is done.
		// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/cacher/watch_cache.go#L341
		"k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2",
		// Nothing waits for the worker, and its requests have no context: one that was told to
		// retry does so, once, in vain.
		// https://github.com/kubernetes/kube-aggregator/blob/v0.37.2/pkg/controllers/autoregister/autoregister_controller.go#L163
		"k8s.io/kube-aggregator/pkg/controllers/autoregister.(*autoRegisterController).runWorker",
		// The first request to /livez in a process starts a goroutine that runs until the
		// process ends.
		// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/server/healthz/healthz.go#L81
		"k8s.io/apimachinery/pkg/util/wait.Forever",
	}
}

// endPatience is how long goroutines that were told to end may take on a busy machine.
const endPatience = 30 * time.Second

// ended waits until no goroutine has the tag, or reports those that still have it.
func (g tag) ended() error {
	wait := time.Millisecond
	for begun := time.Now(); ; wait = min(2*wait, 100*time.Millisecond) {
		left, err := g.goroutines()
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Since(begun) > endPatience {
			return fmt.Errorf("goroutines of the plane were left %v after it stopped:\n\n%s", endPatience, strings.Join(left, "\n\n"))
		}
		<-time.After(wait)
	}
}

// goroutines returns the stacks of those with the tag, equal ones once. The
// format is that of debug level 1 of
// https://pkg.go.dev/runtime/pprof#Profile.WriteTo.
func (g tag) goroutines() ([]string, error) {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return nil, fmt.Errorf("read the goroutine profile: %w", err)
	}
	label := fmt.Sprintf("%q:%q", tagKey, g.name)
	var left []string
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		_, labels, found := strings.Cut(stack, "\n# labels: ")
		if labels, _, _ = strings.Cut(labels, "\n"); !found || !strings.Contains(labels, label) {
			continue
		}
		if !slices.ContainsFunc(outlive(), func(f string) bool { return strings.Contains(stack, "\t"+f+"+") }) {
			left = append(left, stack)
		}
	}
	return left, nil
}
