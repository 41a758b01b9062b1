// Package secretfile reads files with secrets, and refuses those that every user
// may touch.
package secretfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
)

// others are the permissions of users who are neither the owner nor in the group
// of a file.
const others fs.FileMode = 0o007

// Read reads a file that only its owner and group may touch. For other files the
// error says what to do.
func Read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Windows has no such permissions: Go makes up a mode there.
	if info.Mode().Perm()&others != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("every user of this machine has permissions on it (mode %04o): run chmod 0600 %s",
			info.Mode().Perm(), file)
	}
	return io.ReadAll(f)
}
