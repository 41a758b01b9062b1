// Package feed mirrors the metadata of every object that the planes of a server
// store, from one watch on the server's key prefix: who is where, who owns whom, who
// is being deleted. A [Hub] has the watch, and each plane a [Feed].
//
// It is what the lifecycle of objects is decided from (deletion of namespaces,
// garbage collection, quota), in place of one informer for each resource. It
// asks nobody which resources there are: a stored value says its group, version,
// kind and metadata, and its key ends in namespace and name.
//
// All resources of a plane arrive in the order in which they were written. So an
// owner is known before whatever was made to depend on it.
package feed
