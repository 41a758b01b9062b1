package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
)

// lookEvery is how often the configuration file is read, to see whether it changed: as
// often as the files that it names.
const lookEvery = time.Second

// follow puts changes of the configuration file into effect, until the context ends:
// within seconds, and at once on SIGHUP. A file that cannot be used is logged, and
// changes nothing.
func (s *settings) follow(ctx context.Context, live *server.Live, out io.Writer) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGHUP)
	defer signal.Stop(asked)
	if s.file == "" {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-asked:
				fmt.Fprintln(out, "sailplane: there is no configuration file to read again: the files of flags are followed anyway")
			}
		}
	}
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	known, _ := os.ReadFile(s.file) // if it cannot be read, the next look says so
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			known = nil
		case <-ticker.C:
		}
		content, err := os.ReadFile(s.file)
		if err == nil && bytes.Equal(content, known) {
			continue
		}
		if err == nil {
			known = content
			err = s.again(ctx, live, out)
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Could not load the changed configuration, kept the previous one", "file", s.file)
		}
	}
}

// again reads the configuration, and says what changed.
func (s *settings) again(ctx context.Context, live *server.Live, out io.Writer) error {
	d, c, err := s.document()
	if err != nil {
		return err
	}
	now, later, err := live.Change(c, d.At)
	if err != nil {
		return err
	}
	if len(now) > 0 {
		fmt.Fprintf(out, "sailplane: in force now: %s\n", strings.Join(now, ", "))
	}
	if len(later) > 0 {
		fmt.Fprintf(out, "sailplane: in force after a restart: %s\n", strings.Join(later, ", "))
	}
	if len(now)+len(later) == 0 {
		fmt.Fprintln(out, "sailplane: the configuration says the same as before")
	}
	klog.FromContext(ctx).Info("Loaded the configuration", "file", s.file, "changed", now, "restart", later)
	return nil
}
