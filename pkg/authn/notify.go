package authn

import (
	"sync"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// notifier tells listeners that something changed.
type notifier struct {
	mu        sync.Mutex
	listeners []dynamiccertificates.Listener
}

// AddListener implements dynamiccertificates.Notifier.
func (n *notifier) AddListener(l dynamiccertificates.Listener) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners = append(n.listeners, l)
}

func (n *notifier) notify() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.listeners {
		l.Enqueue()
	}
}

// listener is a function called on changes.
type listener func()

// Enqueue implements dynamiccertificates.Listener.
func (f listener) Enqueue() { f() }
