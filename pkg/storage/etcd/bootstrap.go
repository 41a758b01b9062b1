package etcd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// bootstrapMark is a file that exists while a new member is made. A member that
// is interrupted before it first becomes leader has a log that does not name it
// as a member, and waits for others for ever. Nothing was stored in it yet.
const bootstrapMark = "bootstrapping"

// memberDir is where etcd keeps everything.
const memberDir = "member"

// beginBootstrap marks a directory without a member, and empties one whose
// member was never finished. It returns whether the member is new.
func beginBootstrap(dir string) (isNew bool, err error) {
	mark := filepath.Join(dir, bootstrapMark)
	switch _, err := os.Stat(mark); {
	case err == nil:
		if err := os.RemoveAll(filepath.Join(dir, memberDir)); err != nil {
			return false, fmt.Errorf("remove the files of an interrupted start: %w", err)
		}
		return true, nil
	case !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	if _, err := os.Stat(filepath.Join(dir, memberDir)); !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	f, err := os.OpenFile(mark, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return false, err
	}
	return true, errors.Join(f.Sync(), f.Close(), syncDir(dir))
}

// endBootstrap removes the mark, before anything is stored.
func endBootstrap(dir string) error {
	if err := os.Remove(filepath.Join(dir, bootstrapMark)); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
