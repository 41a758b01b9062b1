// Package kine runs the contract of storages on the drivers of kine, each with a
// real database, and holds what docs/storage/kine.md says of them.
package kine
