package main

import (
	"context"
	"fmt"
)

const (
	phaseStart    = "Start"
	rowStart      = "cold start, ms"
	rowStartCPU   = "cold start, CPU ms"
	rowRestart    = "start on existing data, ms"
	rowRestartCPU = "start on existing data, CPU ms"
)

// measureStart measures from exec to the first 200 of /readyz: on an empty
// directory, and on the one the first start left.
func measureStart(ctx context.Context, l *lab, t target) error {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	for _, kind := range []struct{ name, wall, cpu string }{
		{"start", rowStart, rowStartCPU},
		{"restart", rowRestart, rowRestartCPU},
	} {
		s, err := t.start(ctx, dir, fmt.Sprintf("%s-%d", kind.name, l.round))
		if err != nil {
			return err
		}
		l.results.add(phaseStart, kind.wall, milliseconds(s.startWall))
		l.results.add(phaseStart, kind.cpu, milliseconds(s.startCPU))
		if err := s.stop(); err != nil {
			return err
		}
	}
	return nil
}

// with runs f on a server that was just started on an empty directory.
func with(ctx context.Context, l *lab, t target, f func(*server) error) error {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	return on(ctx, t, dir, f)
}

// on runs f on a server that was just started on a directory.
func on(ctx context.Context, t target, dir string, f func(*server) error) (err error) {
	s, err := t.start(ctx, dir, "start")
	if err != nil {
		return err
	}
	defer func() {
		if stopped := s.stop(); err == nil {
			err = stopped
		}
	}()
	return f(s)
}
