// Package lifecycle finishes what a control plane starts:
//
//   - [GarbageCollection] deletes what its owners left behind, and honours the
//     propagation policies Background, Foreground and Orphan
//   - [OwnerPermissions] checks the permissions that a change of owners needs
//   - [DefaultServiceAccounts] and [RootCA] keep an object in every namespace
//
// All but the permissions follow the plane's feed of objects (see controlplane.Plane.Feed): one
// watch on the storage for all resources, whatever their number. They delete
// through the API, with admission, finalizers and preconditions. Where servers
// share a storage, one of them does the work.
//
// The part that serves namespaces, core.Namespaces, empties and removes deleted ones.
package lifecycle
