package authn

// listener is a function called on changes.
type listener func()

// Enqueue implements dynamiccertificates.Listener.
func (f listener) Enqueue() { f() }
