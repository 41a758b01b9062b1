// Package backup takes backups of a server's storage while the server runs, and restores them to any
// storage:
//
//   - [Write] writes one of a running server, and [WriteStored] of a storage that no server uses
//   - [Endpoint] is the part that lets the holder of a kubeconfig take one
//   - [Schedule] is the part that has a server take its own, into a directory
//   - [Read] checks one and says what is in it
//   - [Restore] fills a storage with one
//
// A backup has every key below the server's prefix as it was at one revision, as it was stored:
// encrypted objects are encrypted in it, and it has no key to decrypt them. It has no private keys and
// no certificates either, unless servers share them in the storage, sealed ([pkg/sharing]).
//
// What a part of a running server keeps in another storage, as lent storage does, is in its backup, too, as if it were in
// the server's own ([controlplane.ServerPlan.KeepElsewhere]): a restore fills one storage with everything.
//
// # Format
//
// A backup is a zstd stream (https://www.rfc-editor.org/rfc/rfc8878). Uncompressed, it is
//
//	a line with an Info in JSON, in which what is counted is missing
//	for each key, in the order of their bytes:
//	    the length of the key, and the key
//	    when it expires, in seconds since 1970, or 0
//	    the length of the value, and the value
//	a byte 0
//	a line with the whole Info in JSON
//
// with numbers as unsigned varints (https://protobuf.dev/programming-guides/encoding/#varints).
package backup
