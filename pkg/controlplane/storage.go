package controlplane

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Storage is a datastore that speaks the etcd v3 API, wherever it lives: in
// this process (embedded etcd, kine) or behind a socket (an etcd cluster).
//
// A server calls Start once, then Client once per resource, and Stop once,
// after everything that uses a client has ended.
type Storage interface {
	// Start opens the datastore and returns when it answers. The context
	// bounds the start only: a datastore lives until Stop. An error names the
	// file, directory or address and says what to do about it.
	Start(context.Context) error
	// Client returns a client for one store: its own Watcher over the shared
	// connection. The caller closes it.
	Client() (*clientv3.Client, error)
	// Stop ends every goroutine and releases every file of the datastore. It
	// is safe to call after a Start that failed, and more than once.
	Stop(context.Context) error
}

// Datastore describes where a server keeps its objects: a directory, a file,
// the addresses of an etcd cluster, or memory. It is a plain value, so one
// description can be written as a literal and opened by several servers.
type Datastore interface {
	// Open makes a Storage that was not started yet. It does no I/O: what is
	// wrong with the description is an error of Storage.Start.
	Open() Storage
}

// SharedStorage is implemented by a Storage that servers in other processes may
// use at the same time, with the same prefix.
type SharedStorage interface {
	Storage
	// Shared tells whether they may.
	Shared() bool
}

func isShared(s Storage) bool {
	shared, ok := s.(SharedStorage)
	return ok && shared.Shared()
}
