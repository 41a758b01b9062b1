package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// profiler has ./bench/profiled write profiles of itself. It answers each line
// of its standard input with one on its standard output.
type profiler struct {
	dir     string // empty: phases write none
	storage string
	in      io.Writer
	out     *bufio.Scanner
}

// begin starts the program, with a profile of its start.
func (p *profiler) begin(cmd *exec.Cmd, phase string) (*process, error) {
	if p.dir != "" {
		cmd.Args = append(cmd.Args, "--cpuprofile="+p.file(phase, "cpu"))
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	// Not StdoutPipe: it must not be closed before it is read.
	reader, writer := io.Pipe()
	cmd.Stdout = writer
	p.out = bufio.NewScanner(reader)
	started, err := begin(cmd)
	if err != nil {
		return nil, err
	}
	go func() {
		<-started.done
		_ = writer.Close() // never fails
	}()
	return started, nil
}

func (p *profiler) file(phase, kind string) string {
	return filepath.Join(p.dir, fmt.Sprintf("%s-%s.%s.pb.gz", p.storage, strings.ReplaceAll(phase, " ", "-"), kind))
}

func (p *profiler) ask(line string) error {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return err
	}
	if !p.out.Scan() {
		return errors.Join(errors.New("the server ended"), p.out.Err())
	}
	if answer := p.out.Text(); answer != "ok" {
		return fmt.Errorf("profile: %s: %s", line, answer)
	}
	return nil
}

// phase profiles what the server does during f, if profiles are written.
func (s *server) phase(name string, f func() error) error {
	if s.profiler == nil || s.profiler.dir == "" {
		return f()
	}
	if err := s.profiler.ask("cpu " + s.profiler.file(name, "cpu")); err != nil {
		return err
	}
	if err := errors.Join(f(), s.profiler.ask("stop")); err != nil {
		return err
	}
	return s.profiler.ask("heap " + s.profiler.file(name, "heap"))
}

// writePGO writes one CPU profile of servers on all storages at mixed work.
func writePGO(ctx context.Context, l *lab, targets []target) error {
	args := []string{"tool", "pprof", "-proto", "-output=" + l.pgo}
	for _, t := range targets {
		l.say("%s: mixed work", t.name())
		l.results.measure(t.name())
		dir, err := l.fresh()
		if err != nil {
			return err
		}
		s, err := t.start(ctx, dir, "")
		if err != nil {
			return err
		}
		file := filepath.Join(dir, "cpu.pb.gz")
		err = s.profiler.ask("cpu " + file)
		if err == nil {
			err = errors.Join(mixed(ctx, l, s), s.profiler.ask("stop"))
		}
		if err := errors.Join(err, s.stop()); err != nil {
			return err
		}
		args = append(args, file)
	}
	_, err := command(ctx, l.dir, args...)
	l.say("wrote %s", l.pgo)
	return err
}

// profiledWatchers are as many as the other work leaves room for in a profile.
const profiledWatchers = 100

// mixed is work as controllers make it.
func mixed(ctx context.Context, l *lab, s *server) error {
	for _, work := range []func(context.Context, *lab, *server) error{
		func(ctx context.Context, l *lab, s *server) error {
			return errors.Join(fillListed(ctx, s), manyConfigMaps(ctx, l, s, manyClients))
		},
		manyCustomResources,
		func(ctx context.Context, l *lab, s *server) error {
			definers, err := newDefiners(s)
			if err != nil {
				return err
			}
			return burst(ctx, l, definers)
		},
		func(ctx context.Context, l *lab, s *server) error { return fanOut(ctx, l, s, profiledWatchers) },
	} {
		if err := work(ctx, l, s); err != nil {
			return err
		}
	}
	return nil
}
