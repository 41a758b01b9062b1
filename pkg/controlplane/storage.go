package controlplane

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Storage describes where a server keeps its objects: a directory, a file, the
// addresses of an etcd cluster, or memory. It is a plain value, so one
// description can be written as a literal and opened by several servers.
type Storage interface {
	// Open makes a Backend that is not started yet. It does no I/O: Backend.Start
	// reports what is wrong with the description.
	Open() Backend
	// Traits say what the storage promises beyond the contract in
	// pkg/storage/storagetest. They are known without opening it.
	Traits() Traits
}

// Traits are what storages differ in. The zero value promises nothing.
type Traits struct {
	// Engine is what metrics and health checks call the storage: "etcd", "sqlite",
	// "memory". Empty: "other".
	Engine string
	// Shared: servers in other processes may use the storage at the same time,
	// with the same prefix. They are replicas of each other then.
	Shared bool
	// CheapProgress: a watch that asks how far it is gets its answer from this
	// process, in microseconds. API servers ask every few milliseconds then.
	CheapProgress bool
	// MaxOps is how many keys one transaction may write. 0: one.
	MaxOps int
	// Durable: what was acknowledged is on disk, and a power loss does not undo
	// it. An external storage answers for itself.
	Durable bool
}

// Backend is a storage that runs, and speaks the etcd v3 API: in this process
// (a log of revisions, embedded etcd) or behind a socket (an etcd cluster).
//
// A server calls Start once, then Client once per resource, and Stop once,
// after everything that uses a client has ended.
type Backend interface {
	// Start opens the storage and returns when it answers. The context bounds
	// the start only: a backend lives until Stop. An error names the file,
	// directory or address and says what to do about it.
	Start(context.Context) error
	// Client returns a client for one store: its own Watcher over what the
	// backend shares. The caller closes it.
	Client() (*clientv3.Client, error)
	// Stop ends every goroutine and releases every file of the backend. It is
	// safe to call after a Start that failed, and more than once.
	Stop(context.Context) error
}

// Raising is a Storage whose revisions can be made to go on above one. What is moved to it from
// another storage can be told from what was there then: whoever watches from a revision of the other
// storage is refused (410), and lists again.
type Raising interface {
	Storage
	// OpenAbove is Open, and has Start make all further revisions larger than one, with no history
	// of what was before. Start does neither where the newest revision is larger already.
	OpenAbove(revision int64) Backend
}

// Ending is a Backend that may end by itself, with an error from which only a start
// helps. The server ends then, too, with that error.
type Ending interface {
	// Done is closed when the backend has ended by itself.
	Done() <-chan struct{}
	// Err is why it did, or nil.
	Err() error
}

// Defragmenting is a Backend that takes more room than what it keeps needs, until it is told to write that
// anew. Writes, or all requests, wait meanwhile.
type Defragmenting interface {
	// Defragment returns when it is done.
	Defragment(context.Context) error
}
