// Package feed mirrors the metadata of every object that the planes of a server
// store, from one watch on the server's key prefix: which objects are where, which
// own which, which are being deleted. A [Hub] has the watch, and each plane a
// [Feed].
//
// The lifecycle of objects (deletion of namespaces, garbage collection, quota) is
// decided from it, in place of one informer for each resource. It needs no list of
// resources: a stored value says its group, version, kind and metadata, and its key
// ends in namespace and name.
//
// All resources of a plane arrive in the order in which they were written. So an
// owner is known before its dependents.
package feed
