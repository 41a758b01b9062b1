// Package lending holds tests of what an API server gets from a lent storage that need more than
// the library does: Kubernetes' own tests of its etcd3 store, and the contract of storages, both
// through EtcdStorages of a server in a process of its own.
package lending
