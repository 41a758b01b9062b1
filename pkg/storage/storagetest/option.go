package storagetest

import (
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// patience bounds every wait of a test. Only failures reach it.
const patience = 2 * time.Minute

// Option tells the tests something about the storage that they cannot find out.
type Option func(*suite)

// Size has the tests check how much the storage takes on disk. The function
// gets a storage that their open function returned, and returns the bytes of
// everything that grows with writes.
func Size(of func(controlplane.Storage) int64) Option {
	return func(s *suite) { s.size = of }
}

// RenewsLeases says that leases start again when the storage starts, as in
// etcd: the time that passed before is forgotten. Without it, RunPersistent
// expects a key to go when its lease expires, however often the storage was
// started meanwhile.
func RenewsLeases() Option {
	return func(s *suite) { s.renewsLeases = true }
}

// withPatience replaces the time that a test waits for an event that never comes.
func withPatience(d time.Duration) Option {
	return func(s *suite) { s.patience = d }
}

// suite holds what all tests of one storage share.
type suite struct {
	open         func(testing.TB) controlplane.Storage
	size         func(controlplane.Storage) int64
	renewsLeases bool
	patience     time.Duration
}

func newSuite(open func(testing.TB) controlplane.Storage, options []Option) *suite {
	s := &suite{open: open, patience: patience}
	for _, o := range options {
		o(s)
	}
	return s
}

// tests each check one promise; they are found by group and name.
type tests map[string]map[string]func(*testing.T, *harness)

// run runs each test on a storage of its own.
func (s *suite) run(t *testing.T, all tests) {
	for group, members := range all {
		t.Run(group, func(t *testing.T) {
			for name, test := range members {
				t.Run(name, func(t *testing.T) { test(t, s.start(t, s.open(t))) })
			}
		})
	}
}
