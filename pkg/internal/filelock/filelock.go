// Package filelock keeps two servers off the same data.
//
// A lock belongs to an open file, so it ends with its holder however that dies, and
// a second holder in the same process is refused like one in another process. The
// lock file is never removed: a third server could lock a new file while a second
// one still waits on the old.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// Lock is a held lock. The zero value holds nothing.
type Lock struct {
	file *os.File
}

// HeldError says that somebody else holds a lock.
type HeldError struct {
	// Path is the lock file.
	Path string
	// Process is the process id of the holder, or empty where it is unknown.
	Process string
}

// Error says which process uses what the lock protects.
func (e *HeldError) Error() string {
	if e.Process == "" {
		return fmt.Sprintf("in use by another server (lock file %s)", e.Path)
	}
	return fmt.Sprintf("in use by another server (process %s, lock file %s)", e.Process, e.Path)
}

// Take locks the file at path, which it creates with mode 0600, without
// waiting. The error is a *HeldError when somebody else holds the lock.
func Take(path string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	held, err := lock(file)
	if err != nil || held {
		err = refusal(file, path, err)
		return nil, errors.Join(err, file.Close())
	}
	// The process id is for people who read the error of a second server.
	// Nothing depends on it, so a full disk is not an error here.
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt([]byte(fmt.Sprintf("%d\n", os.Getpid())), 0)
	}
	return &Lock{file: file}, nil
}

// retry is the pause between two tries for a lock that is held for a few milliseconds.
const retry = 2 * time.Millisecond

// Wait is Take that waits, as long as the context lasts, while somebody else holds
// the lock. On systems without a lock that ends with its process it holds nothing.
func Wait(ctx context.Context, path string) (*Lock, error) {
	for {
		lock, err := Take(path)
		var held *HeldError
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return &Lock{}, nil
		case !errors.As(err, &held):
			return lock, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(retry):
		}
	}
}

// Release gives the lock up. It is safe on nil and more than once.
func (l *Lock) Release() error {
	if l == nil || l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}

func refusal(file *os.File, path string, err error) error {
	if err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	holder, _ := io.ReadAll(io.LimitReader(file, 32))
	return &HeldError{Path: path, Process: strings.TrimSpace(string(holder))}
}
