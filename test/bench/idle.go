package main

import (
	"context"
	"time"
)

const (
	phaseIdle    = "Idle"
	rowRSS       = "idle: RSS, MiB"
	rowAnonymous = "idle: anonymous memory, MiB"
)

// measureIdle leaves a new server alone and reads what it keeps and what it does.
func measureIdle(ctx context.Context, l *lab, t target) error {
	return with(ctx, l, t, func(s *server) error {
		cpu, err := s.spent(func() error {
			return s.phase("idle", func() error { return pause(ctx, l.idle) })
		})
		if err != nil {
			return err
		}
		m, err := s.memory()
		if err != nil {
			return err
		}
		metrics, err := s.metrics(ctx)
		if err != nil {
			return err
		}
		add := func(name string, value float64) { l.results.add(phaseIdle, name, value) }
		add(rowRSS, mib(m.rss))
		add(rowAnonymous, mib(m.anonymous))
		add("idle: PSS, MiB", mib(m.pss))
		// Of the API server alone: a storage beside it has its own.
		add("idle: goroutines of the API server", metrics["go_goroutines"])
		add("idle: heap in use by the API server, MiB", mib(metrics["go_memstats_heap_inuse_bytes"]))
		add("idle: CPU ms per s", milliseconds(cpu)/l.idle.Seconds())
		return nil
	})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
