// Package etcdserve serves a storage, or a part of one, as an etcd v3 server: over
// gRPC, for API servers that know nothing of this one.
//
// What is served is what the etcd client of a Kubernetes API server calls, and what
// docs/storage/serving.md promises: Range, RangeStream, Put, DeleteRange, Txn and
// Compact; Watch with its cancellation and progress; LeaseGrant; Status and
// MemberList. Anything else is answered with Unimplemented, so that nobody comes to
// rely on it.
//
// A [View] says what a caller may see: its keys are below a root that it does not
// see, and no call reaches beside it. A [Keeper] decides what it may still do.
package etcdserve
