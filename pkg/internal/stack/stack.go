// Package stack gives goroutines of requests the stack they are going to need.
package stack

// size is more than most requests need, in bytes.
const size = 16 << 10

// Reserve makes room on the stack of the goroutine. A request runs in three
// goroutines, one after another (net/http's, that of the timeout, that of the
// write), each of them a hundred calls deep, and Go starts them with a small
// stack that it doubles by copying whenever it is full. Grown once, while there is
// little to copy, 1,000 gets take 0.43 CPU s in place of 0.58 (bench -only requests, 1
// client).
func Reserve() {
	_ = fill(0)
}

// fill has a frame as large as the reserve.
//
//go:noinline
func fill(i int) byte {
	var frame [size]byte
	return frame[i%size]
}
