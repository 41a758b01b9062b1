package faults

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/test/faults/disk"
)

// losses is a disk that loses what was not synced, and the trace of the process
// that writes to it.
type losses struct {
	disk  *disk.Disk
	trace string
}

func newLosses(dir string) *losses {
	return &losses{disk: disk.New(dir), trace: filepath.Join(filepath.Dir(dir), "trace")}
}

// traced returns the command so that its calls are known.
func (l *losses) traced(cmd *exec.Cmd) *exec.Cmd { return disk.Traced(cmd, l.trace) }

// loseOnce has the process lose power: it ends, and its directory is what the
// disk may have. After the last time nobody needs to know what it writes.
func (r *run) loseOnce(ctx context.Context) error {
	r.places[0].now().kill()
	l := r.disk
	if err := l.disk.Replay(l.trace); err != nil {
		return err
	}
	how := disk.Losses()[r.random.IntN(len(disk.Losses()))]
	lost, err := l.disk.Lose(how, r.random)
	if err == nil {
		err = l.disk.Restore()
	}
	if err != nil {
		return fmt.Errorf("lose power: %w", err)
	}
	r.lost += lost
	if r.faults == powerLosses-1 {
		r.disk = nil
	}
	if err := r.start(ctx, 0); err != nil {
		return fmt.Errorf("after a loss of power that left of %d unsynced changes %q: %w", lost, how, err)
	}
	return nil
}
