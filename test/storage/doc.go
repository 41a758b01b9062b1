// Package storage holds tests of storages that need more than the library does:
// Kubernetes' own tests of its storage layer, on each of Sailplane's storages, and
// the contract of storages on etcds of other versions, in processes of their own.
package storage
