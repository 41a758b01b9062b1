// Package keeptest is for authors of storage of their own: [Run] holds a keep.Keeper to its
// contract, and [Memory] is one in memory, to read and to test with.
package keeptest
