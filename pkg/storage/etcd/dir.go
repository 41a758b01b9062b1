package etcd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
)

// databaseWait is how long the check of a database waits for its lock. We hold
// our own lock by then, so only a foreign etcd can hold it.
const databaseWait = 100 * time.Millisecond

// indexSize is how many bytes the index of an entry takes in the database.
const indexSize = 8

// prepared is a data directory that this process has locked.
type prepared struct {
	dir   string
	isNew bool // a member is made in it
	lock  *filelock.Lock
}

// prepare makes and locks a data directory and finds what is wrong with it:
// faults for which etcd would hang or end the process.
func prepare(path string) (*prepared, error) {
	dir, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err == nil && !info.IsDir() {
		return nil, errors.New("is a file, not a directory; choose another path")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	lock, err := filelock.Take(filepath.Join(dir, "lock"))
	if err != nil {
		var held *filelock.HeldError
		if errors.As(err, &held) {
			return nil, fmt.Errorf("%w; stop that server or choose another directory", err)
		}
		return nil, fmt.Errorf("lock: %w; the directory must be writable", err)
	}
	isNew, err := beginBootstrap(dir)
	if err == nil {
		var applied uint64
		if applied, err = checkDatabase(filepath.Join(dir, memberDir, "snap", "db")); err == nil {
			err = checkLog(filepath.Join(dir, memberDir, "wal"), applied)
		}
	}
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	return &prepared{dir: dir, isNew: isNew, lock: lock}, nil
}

// checkDatabase opens the database, where there is one, and reads its pages. It
// returns how many entries of the log are in it. etcd reads them too, in a goroutine
// whose panics cannot be caught.
func checkDatabase(path string) (applied uint64, err error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	// The file is mapped into memory, and a page that is missing is a fault.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = damaged(path, fmt.Errorf("%v", p))
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: databaseWait})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return 0, fmt.Errorf("database %s: in use by another program; stop that program or choose another directory", path)
	}
	if err != nil {
		return 0, damaged(path, err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if meta := tx.Bucket(schema.Meta.Name()); meta != nil {
			if v := meta.Get(schema.MetaConsistentIndexKeyName); len(v) == indexSize {
				applied = binary.BigEndian.Uint64(v)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Size() < tx.Size() {
			return errors.Join(err, fmt.Errorf("it has %d bytes, but its pages need %d", info.Size(), tx.Size()))
		}
		return tx.ForEach(func(_ []byte, b *bbolt.Bucket) error {
			c := b.Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
			}
			return nil
		})
	})
	if err != nil {
		err = damaged(path, err)
	}
	return applied, errors.Join(err, db.Close())
}

// advise says what to do about an error of etcd's start.
func advise(err error) error {
	switch {
	case isFull(err):
		return fmt.Errorf("%w; the disk is full: make room", err)
	case errors.Is(err, os.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w; the directory must be writable", err)
	default:
		return fmt.Errorf("%w; if the directory is damaged, restore a copy of it or choose another", err)
	}
}

// isFull tells whether there was no room for a file, even if only the text of the
// error says so.
func isFull(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(full syscall.Errno) bool {
		return strings.Contains(err.Error(), full.Error())
	})
}

func damaged(path string, err error) error {
	return fmt.Errorf("database %s: %w; it is damaged: restore a copy of the directory or choose another", path, err)
}
