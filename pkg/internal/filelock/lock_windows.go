package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// lock reports whether somebody else holds the lock of file. It locks one byte
// far behind the end, because a locked range cannot be read by others.
func lock(file *os.File) (held bool, err error) {
	at := &windows.Overlapped{OffsetHigh: 1}
	flags := uint32(windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY)
	err = windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return true, nil
	}
	return false, err
}
