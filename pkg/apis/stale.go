package apis

import (
	"errors"
	"fmt"
	"time"
)

// Stale has clients get the last good answer, if it is no older than that, with a warning that
// says how old it is, while what the objects are read from fails. It is for resources that are
// [Virtual], [Kept] or a [Project]. All objects are read for that, whatever clients ask for, and
// are in memory that long after the last one asked. A list of one version, or a page that goes on
// after another one, is of that version or fails. Writes fail with 503 Service Unavailable, as
// reads do without Stale.
func Stale(d time.Duration) Option {
	return func(def *Definition) {
		if def.stale = d; d <= 0 {
			def.optionErrs = append(def.optionErrs, fmt.Errorf("Stale: %v: want more than 0", d))
		}
	}
}

// checkStale finds a Stale that has no effect.
func (d *Definition) checkStale() []error {
	if d.stale != 0 && d.kept == nil {
		return []error{errors.New("Stale: the objects are in the storage of the plane: it is for Virtual, Kept and Project")}
	}
	return nil
}
