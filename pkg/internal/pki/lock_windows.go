package pki

import (
	"errors"
	"syscall"
)

// errSharing is ERROR_SHARING_VIOLATION: someone has the file open.
const errSharing = syscall.Errno(32)

// tryLock returns nil for a lock that is held. Opening a file without sharing it
// is the lock; the system closes the file of a process that ends.
func tryLock(path string) (unlock func(), err error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, err
	}
	handle, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, 0, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if errors.Is(err, errSharing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = syscall.CloseHandle(handle) }, nil
}
