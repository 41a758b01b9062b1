// Package manifest writes the objects of a server as YAML, in an order that can
// be applied, and applies them to a server.
//
// [Export] reads all resources at one revision and gives each object to a [Sink]:
// a stream, a file or a [Directory]. [Import] reads such documents, and says of
// each what it did. Both leave out of objects what a server sets ([Form]), so
// that an export of what was imported is the same, byte for byte.
package manifest
