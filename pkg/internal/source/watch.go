package source

import "k8s.io/apimachinery/pkg/watch"

// Watch is a watch that calls a function when it is stopped, so that it uses something until then.
func Watch(w watch.Interface, done func()) watch.Interface { return &used{w, done} }

type used struct {
	watch.Interface

	done func()
}

// Stop implements watch.Interface.
func (u *used) Stop() {
	u.Interface.Stop()
	u.done()
}
