//go:build darwin || freebsd || linux

package sqlite

import "golang.org/x/sys/unix"

// freeSpace is how many bytes may be written to the file system of a directory.
func freeSpace(dir string) (bytes int64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true //nolint:unconvert // the types differ by system
}
