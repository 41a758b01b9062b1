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
	// is when it was looked at whether these are over.
	asked, now time.Time
	waits      map[schema.GroupVersion]wait
}

// failure is why a resource may not be empty. It is that of a group version of
// another server, or of this plane, which has none here.
type failure struct {
	at  schema.GroupVersion
	err error
}

// over tells that a group version of another server is not waited for any more.
// What this plane stores always is.
func (r *remains) over(gv schema.GroupVersion) bool { return r.waits[gv].over(r.now) }

// blocks tells whether the namespace has to wait.
func (r *remains) blocks() bool {
	for gv := range r.undiscovered {
		if !r.over(gv) {
			return true
		}
	}
	return len(r.objects) > 0 || slices.ContainsFunc(r.failed, func(f failure) bool { return !r.over(f.at) })
}

// failing are the group versions of other servers that did not do what they were
// asked for.
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

// told is an error with what is waited for.
func (r *remains) told(at schema.GroupVersion, err error) error {
	w, ok := r.waits[at]
	if !ok {
		return err
	}
	waited := "waited for until"
	if w.over(r.now) {
		waited = "not waited for since"
	}
	return fmt.Errorf("%w (%s %s)", err, waited, w.until.UTC().Format(time.RFC3339))
}

// undiscoveries are the group versions of which nobody knows what they have.
func (r *remains) undiscoveries() []error {
	var errs []error
	for gv, err := range r.undiscovered {
		errs = append(errs, r.told(gv, fmt.Errorf("%s: %w", gv, err)))
	}
	return errs
}

// failures are the resources that may not be empty.
func (r *remains) failures() []error {
	var errs []error
	for _, f := range r.failed {
		errs = append(errs, r.told(f.at, f.err))
	}
	return errs
}

// err is what keeps the namespace beyond waiting.
func (r *remains) err() error {
	errs := r.failures()
	for _, err := range r.undiscoveries() {
		errs = append(errs, fmt.Errorf("discovery of %w", err))
	}
	return errors.Join(errs...)
}

// undiscover notes that nobody knows what a group version has.
func (r *remains) undiscover(gv schema.GroupVersion, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.undiscovered[gv] = err
}

// fail notes why a resource may not be empty; no error is no failure.
func (r *remains) fail(at schema.GroupVersion, t catalog.Target, err error) {
	if err == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = append(r.failed, failure{at, fmt.Errorf("%s: %w", t, err)})
}

// left notes objects that are still there.
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
