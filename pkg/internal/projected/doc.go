// Package projected serves the objects of one resource as those of another one, the view.
//
// It is a storage.Interface that keeps nothing: it reads and writes the resource below by its API,
// and has functions publish what is below as objects of the view, and accept what clients wrote
// into what is below. On it stands the registry of k8s.io/apiserver as on any storage, so that
// strategies, sub-resources, server-side apply and dry run are those of stored resources.
//
// Versions, pages and their tokens are those of the resource below. Watches come from one watch
// cache, which watches the resource below once, from the first watch of the view on. An object
// that is below and is not shown is in the cache as its name only, with a field that no client can
// select; so what upstream does for a selector that an object begins or ceases to match makes the
// ADDED and DELETED of objects that are shown and hidden.
package projected
