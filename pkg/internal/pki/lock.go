package pki

import (
	"context"
	"fmt"
	"time"
)

// lockRetry is the pause between two tries for a lock that is held. Its holder
// needs it for a few milliseconds.
const lockRetry = 2 * time.Millisecond

// lock waits for the lock file, which is created and stays, and returns the
// function that unlocks it. The system unlocks it when the process ends.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	for {
		unlock, err := tryLock(path)
		if err != nil {
			return nil, fmt.Errorf("lock certificate folder: %s: %w", path, err)
		}
		if unlock != nil {
			return unlock, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("lock certificate folder: %s is held by another process: %w", path, context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
}
