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
// The tests have names that say what is promised, in groups, so that one of them
// runs with -run 'TestContract/revisions/never_go_back_for_a_client'. What
// depends on controlplane.Traits is tested as far as the storage claims it.
// They take a minute or so; -short leaves out the largest.
//
// The tests know etcd's client only: what they ask for is what etcd promises
// and API servers use, and etcd itself passes them.
package storagetest
