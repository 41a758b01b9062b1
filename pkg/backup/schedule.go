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
	for {
		wait := max(0, s.Every-time.Since(server.Storage(ctx).Backup.Taken))
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return nil
		}
		if err := s.take(ctx, server); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Could not take a backup; will retry", "directory", s.Dir, "after", min(s.Every, retryAfter))
			select {
			case <-time.After(min(s.Every, retryAfter)):
			case <-ctx.Done():
				return nil
			}
		}
	}
}

// take takes a backup, and removes those that are too many.
func (s Schedule) take(ctx context.Context, server *controlplane.Server) error {
	begun := time.Now()
	d := Directory{Path: s.Dir, Name: server.Name(), Keep: s.Keep}
	name, info, size, err := d.Write(func(to io.Writer) (Info, error) { return Write(ctx, server, to) })
	if err != nil {
		return err
	}
	klog.FromContext(ctx).Info("Took a backup", "file", name, "keys", info.Keys, "revision", info.Revision, "bytes", size,
		"took", time.Since(begun).Round(time.Millisecond))
	return server.NoteBackup(ctx, controlplane.Backup{Taken: info.Taken, Revision: info.Revision})
}
