package quota

import "time"

// SettledAfter is the part with another time in which a reservation is waited
// for.
func SettledAfter(d time.Duration) ResourceQuotas { return ResourceQuotas{settle: d} }
