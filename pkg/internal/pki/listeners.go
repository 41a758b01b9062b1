package pki

import (
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// Listeners are told when certificates change.
type Listeners struct {
	mu  sync.Mutex
	all []dynamiccertificates.Listener
}

// AddListener implements dynamiccertificates.Notifier.
func (l *Listeners) AddListener(one dynamiccertificates.Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
}

// Notify tells them.
func (l *Listeners) Notify() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		one.Enqueue()
	}
}
