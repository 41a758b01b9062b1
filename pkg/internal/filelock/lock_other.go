//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package filelock

import (
	"errors"
	"os"
)

func lock(*os.File) (held bool, err error) { return false, errors.ErrUnsupported }
