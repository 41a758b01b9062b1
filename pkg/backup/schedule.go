package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

const (
	defaultEvery = 24 * time.Hour
	defaultKeep  = 7
	// retryAfter is how long a server waits after a backup failed, unless they are more frequent.
	retryAfter = 5 * time.Minute
)

// Schedule has the server take backups by itself. Of servers that share a storage, one does: give all of
// them the same directory.
type Schedule struct {
	// Dir is the directory, which is created with mode 0700. A backup is in a file of its own of mode
	// 0600, whose name has the time when it was taken: NAME-20060102T150405Z.backup, with the name of the
	// server. Required.
	Dir string
	// Every is how much time is between two backups, whoever takes them. 0: 24 hours.
	Every time.Duration
	// Keep is how many backups stay in the directory: older ones are removed. 0: 7.
	Keep int
}

// PartName implements the name errors use.
func (Schedule) PartName() string { return "backup.Schedule" }

// Install implements controlplane.Part.
func (Schedule) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares the work.
func (s Schedule) InstallServer(p *controlplane.ServerPlan) error {
	var errs []error
	if s.Dir == "" {
		errs = append(errs, errors.New("field Dir: is empty: name a directory for the backups"))
	}
	if s.Every < 0 {
		errs = append(errs, fmt.Errorf("field Every is %v: want more than 0, or 0 for %v", s.Every, defaultEvery))
	}
	if s.Keep < 0 {
		errs = append(errs, fmt.Errorf("field Keep is %d: want more than 0, or 0 for %d", s.Keep, defaultKeep))
	}
	if s.Every == 0 {
		s.Every = defaultEvery
	}
	if s.Keep == 0 {
		s.Keep = defaultKeep
	}
	p.Root().Work(controlplane.Work{Name: "backups", Elected: true, Run: s.run})
	return errors.Join(errs...)
}

// run takes backups until the context ends.
func (s Schedule) run(ctx context.Context, plane *controlplane.Plane) error {
	server := plane.Server()
	var last time.Time // of its own backups: a full storage does not note them
	for {
		if noted := server.Storage(ctx).Backup.Taken; noted.After(last) {
			last = noted
		}
		if !sleep(ctx, s.Every-time.Since(last)) {
			return nil
		}
		taken, err := s.take(ctx, server)
		log := klog.FromContext(ctx).WithValues("directory", s.Dir)
		switch {
		case ctx.Err() != nil: // whatever it was
		case taken.IsZero():
			retry := min(s.Every, retryAfter)
			log.Error(err, "Could not take a backup; will retry", "after", retry)
			if !sleep(ctx, retry) {
				return nil
			}
		case err != nil:
			log.Error(err, "Took a backup, and could not note it, or remove older ones")
		}
		if !taken.IsZero() {
			last = taken
		}
	}
}

// sleep returns false if the context ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// take takes a backup, and removes those that are too many. It returns when the backup was taken; the zero
// time if none was.
func (s Schedule) take(ctx context.Context, server *controlplane.Server) (time.Time, error) {
	begun := time.Now()
	d := Directory{Path: s.Dir, Name: server.Name(), Keep: s.Keep}
	name, info, size, err := d.Write(func(to io.Writer) (Info, error) { return Write(ctx, server, to) })
	if name == "" {
		return time.Time{}, err
	}
	klog.FromContext(ctx).Info("Took a backup", "file", name, "keys", info.Keys, "revision", info.Revision, "bytes", size,
		"took", time.Since(begun).Round(time.Millisecond))
	return info.Taken, errors.Join(err, server.NoteBackup(ctx, controlplane.Backup{Taken: info.Taken, Revision: info.Revision}))
}
