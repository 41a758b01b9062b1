// Package storagetest is the contract of a storage: what an API server relies
// on when it talks to etcd, as tests that run on any controlplane.Storage.
//
// The author of a storage calls it from a test of the storage's own package:
//
//	func TestContract(t *testing.T) {
//		storagetest.Run(t, func(t testing.TB) controlplane.Storage {
//			return mine.File{Path: filepath.Join(t.TempDir(), "state")}
//		})
//	}
//
//	func TestPersistence(t *testing.T) {
//		storagetest.RunPersistent(t, func(t testing.TB) controlplane.Storage {
//			return mine.File{Path: filepath.Join(t.TempDir(), "state")}
//		})
//	}
//
// Every call of the function describes a storage that is empty. Run is for
// every storage, RunPersistent for those that keep what they hold when they
// stop. BenchmarkStart and BenchmarkCreate measure one.
//
// The names of the tests say what is promised, in groups, so that one of them
// runs with -run 'TestContract/revisions/never_go_back_for_a_client'. Promises
// that depend on controlplane.Traits are tested if the storage claims them. The
// tests take a minute or so; -short leaves out the largest.
//
// The tests use etcd's client only: they ask for what etcd promises and API
// servers use, and etcd itself passes them.
package storagetest
