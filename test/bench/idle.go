package main

import (
	"context"
	"time"
)

const rowRSS = "idle: RSS, MiB"

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
		l.table.set(rowRSS, mib(m.rss))
		l.table.set("idle: RSS that is not pages of the binary, MiB", mib(m.anonymous))
		l.table.set("idle: PSS, MiB", mib(m.pss))
		metrics, err := s.metrics(ctx)
		if err != nil {
			return err
		}
		l.table.set("idle: goroutines", digits(metrics["go_goroutines"]))
		l.table.set("idle: heap in use, MiB", mib(metrics["go_memstats_heap_inuse_bytes"]))
		l.table.set("idle: heap allocated, MiB", mib(metrics["go_memstats_heap_alloc_bytes"]))
		l.table.set("idle: CPU ms per s", digits(float64(cpu)/float64(time.Millisecond)/l.idle.Seconds()))
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
