package lifecycle

import "time"

// WithPatience is the part with another time in which other servers are waited for.
func WithPatience(d time.Duration) NamespaceDeletion { return NamespaceDeletion{patience: d} }
