package auditing

import "time"

// FlushFor is the webhook with another time in which a stopping server delivers
// what it holds.
func (w Webhook) FlushFor(d time.Duration) Webhook {
	w.flush = d
	return w
}
