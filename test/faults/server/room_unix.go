//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFull has writes beyond the limit fail with EFBIG, which takes the way of
// ENOSPC. Their signal would end the process.
func ignoreFull() { signal.Ignore(syscall.SIGXFSZ) }

// limitFiles limits the size of files. 0: no limit.
func limitFiles(size uint64) error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	if size > 0 {
		limit.Cur = size
	}
	return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit)
}
