package main

import (
	"context"
	"errors"
	"fmt"
)

const (
	copyName  = "copy"
	phaseCopy = "Copies and restores"
)

// copyArgs are the commands that fill a storage.
func copyArgs(from *original, to string) [][]string {
	return [][]string{
		{"storage", "copy", "--from=sqlite:" + from.file, "--to=" + to},
		{"restore", from.backup, "--to=" + to},
	}
}

// measureCopy fills empty storages with a copy of a SQLite file, and with a backup of it. Both read what they
// wrote and compare it. What flushes the disk does so.
func measureCopy(ctx context.Context, l *lab, t target) error {
	to, ok := t.(mover)
	if !ok || !to.moves() {
		return nil
	}
	from, err := l.filled(ctx)
	if err != nil {
		return err
	}
	nothing, err := l.watched(ctx, "version")
	if err != nil {
		return err
	}
	l.results.add(phaseCopy, "sailplane version: anonymous memory at its peak, MiB", mib(nothing.anonymous))
	for i, what := range []string{"copy", "restore"} {
		if err := l.copyTo(ctx, to, func(url string) []string { return copyArgs(from, url)[i] }, l.movedOf(what)); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

// copyTo runs a command that fills an empty storage.
func (l *lab) copyTo(ctx context.Context, to mover, args func(url string) []string, row string) (err error) {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	v, err := to.vacant(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	e, err := l.watched(ctx, args(v.url)...)
	if err != nil {
		return err
	}
	l.results.add(phaseCopy, row+": s", e.wall.Seconds())
	l.results.add(phaseCopy, row+": keys per s", float64(l.moved)/e.wall.Seconds())
	l.results.add(phaseCopy, row+": CPU s of the command", e.cpu.Seconds())
	l.footprints(phaseCopy, row, e.footprint)
	return nil
}

// footprints adds the memory of a command.
func (l *lab) footprints(phase, row string, f footprint) {
	l.results.add(phase, row+": anonymous memory of the command at its peak, MiB", mib(f.anonymous))
	l.results.add(phase, row+": RSS of the command at its peak, MiB", mib(f.resident))
}
