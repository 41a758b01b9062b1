package terminator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
)

// remains is what a namespace still holds after a try to empty it.
type remains struct {
	mu           sync.Mutex
	undiscovered map[schema.GroupVersion]error
	failed       []failure
	objects      map[string]int // by resource, "configmaps."
	finalizers   map[string]int

	// asked is when other servers were asked, waits are for those that fail, and now
	// is when the waits were checked.
	asked, now time.Time
	waits      map[schema.GroupVersion]wait
}

// failure is why a resource may not be empty. Its group version is that of another
// server, empty for this plane.
type failure struct {
	at  schema.GroupVersion
	err error
}

// over tells that the wait for a group version of another server is over. The wait
// for what this plane stores never is.
func (r *remains) over(gv schema.GroupVersion) bool { return r.waits[gv].over(r.now) }

// blocks tells whether the namespace must wait.
func (r *remains) blocks() bool {
	for gv := range r.undiscovered {
		if !r.over(gv) {
			return true
		}
	}
	return len(r.objects) > 0 || slices.ContainsFunc(r.failed, func(f failure) bool { return !r.over(f.at) })
}

// failing returns the group versions of other servers that failed.
func (r *remains) failing(remote map[schema.GroupVersion]bool) []schema.GroupVersion {
	var all []schema.GroupVersion
	for gv := range remote {
		_, undiscovered := r.undiscovered[gv]
		if undiscovered || slices.ContainsFunc(r.failed, func(f failure) bool { return f.at == gv }) {
			all = append(all, gv)
		}
	}
	return all
}

// withDeadline returns an error that names what the namespace waits for.
func (r *remains) withDeadline(at schema.GroupVersion, err error) error {
	w, ok := r.waits[at]
	if !ok {
		return err
	}
	waited := "waiting until"
	if w.over(r.now) {
		waited = "stopped waiting at"
	}
	return fmt.Errorf("%w (%s %s)", err, waited, w.until.UTC().Format(time.RFC3339))
}

// undiscoveries are the group versions whose resources are unknown.
func (r *remains) undiscoveries() []error {
	var errs []error
	for gv, err := range r.undiscovered {
		errs = append(errs, r.withDeadline(gv, fmt.Errorf("%s: %w", gv, err)))
	}
	return errs
}

// failures are the resources that may not be empty.
func (r *remains) failures() []error {
	var errs []error
	for _, f := range r.failed {
		errs = append(errs, r.withDeadline(f.at, f.err))
	}
	return errs
}

// err returns what keeps the namespace besides the objects left in it.
func (r *remains) err() error {
	errs := r.failures()
	for _, err := range r.undiscoveries() {
		errs = append(errs, fmt.Errorf("discovery of %w", err))
	}
	return errors.Join(errs...)
}

// forgive forgets that a group version failed.
func (r *remains) forgive(gv schema.GroupVersion) {
	delete(r.undiscovered, gv)
	r.failed = slices.DeleteFunc(r.failed, func(f failure) bool { return f.at == gv })
}

// undiscover notes that the resources of a group version are unknown.
func (r *remains) undiscover(gv schema.GroupVersion, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undiscovered[gv] = err
}

// fail notes why a resource may not be empty; a nil error is no failure.
func (r *remains) fail(at schema.GroupVersion, t catalog.Target, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, failure{at, fmt.Errorf("%s: %w", t, err)})
}

// left notes objects that remain.
func (r *remains) left(t catalog.Target, n int, finalizers map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.objects[t.String()] += n
	for f, n := range finalizers {
		r.finalizers[f] += n
	}
}

// counted is "A in 2 resource instances, B in 1 resource instances", in order.
func counted(m map[string]int, format string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		all = append(all, fmt.Sprintf(format, name, m[name]))
	}
	return strings.Join(all, ", ")
}
