package main

import (
	"context"
	"fmt"
	"time"
)

const (
	rowStart      = "cold start, ms"
	rowStartCPU   = "cold start, CPU ms"
	rowRestart    = "start on existing data, ms"
	rowRestartCPU = "start on existing data, CPU ms"
)

// measureStart measures from exec to the first 200 of /readyz: on an empty
// directory, and on the one the first start left.
func measureStart(ctx context.Context, l *lab, t target) error {
	var cold, again starts
	for i := range l.runs {
		dir, err := l.fresh()
		if err != nil {
			return err
		}
		for kind, into := range []*starts{&cold, &again} {
			s, err := t.start(ctx, dir, fmt.Sprintf("%s-%d", []string{"start", "restart"}[kind], i))
			if err != nil {
				return err
			}
			into.wall = append(into.wall, s.startWall)
			into.cpu = append(into.cpu, s.startCPU)
			if err := s.stop(); err != nil {
				return err
			}
		}
	}
	l.table.set(rowStart, spread(cold.wall))
	l.table.set(rowStartCPU, spread(cold.cpu))
	l.table.set(rowRestart, spread(again.wall))
	l.table.set(rowRestartCPU, spread(again.cpu))
	return nil
}

type starts struct{ wall, cpu []time.Duration }

// with runs f on a server that was just started on an empty directory.
func with(ctx context.Context, l *lab, t target, f func(*server) error) (err error) {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
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
