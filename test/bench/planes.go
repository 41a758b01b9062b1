package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
)

const phasePlanes = "Planes in one process"

// measurePlanes starts many planes in a process of their own, in memory: servers of
// one plane each, then planes of one server. kube-apiserver has nothing alike.
func measurePlanes(ctx context.Context, l *lab, t target) error {
	if s, ok := t.(*sailplane); !ok || s.storage != storageMemory {
		return nil
	}
	if err := startPlanes(ctx, l, "each further plane"); err != nil {
		return err
	}
	return startPlanes(ctx, l, "each plane added to a server", "-added")
}

// startPlanes measures the first plane and what each further one, which is called
// what, adds.
func startPlanes(ctx context.Context, l *lab, what string, flags ...string) (err error) {
	reader, writer := io.Pipe()
	cmd := exec.Command(l.program("planes"), append(flags, "-n", strconv.Itoa(l.planes))...)
	cmd.Stdout = writer
	p, err := begin(cmd)
	if err != nil {
		return err
	}
	go func() {
		<-p.done
		_ = writer.Close() // never fails
	}()
	defer context.AfterFunc(ctx, func() { _ = reader.CloseWithError(ctx.Err()) })()
	defer func() { err = errors.Join(err, p.stop()) }()
	type cost struct {
		Milliseconds float64 `json:"ms"`
		Heap         float64 `json:"heap"`
		Goroutines   float64 `json:"goroutines"`
	}
	s := &server{processes: []*process{p}}
	var all []cost
	var first usage
	for lines := bufio.NewScanner(reader); len(all) < l.planes; {
		if !lines.Scan() {
			return errors.Join(fmt.Errorf("%d of %d planes started", len(all), l.planes), lines.Err(), p.ended())
		}
		var c cost
		if err := json.Unmarshal(lines.Bytes(), &c); err != nil {
			return fmt.Errorf("%q: %w", lines.Text(), err)
		}
		if all = append(all, c); len(all) == 1 {
			if first, err = s.memory(); err != nil {
				return err
			}
		}
	}
	last, err := s.memory()
	if err != nil {
		return err
	}
	add := func(name string, value float64) { l.results.add(phasePlanes, name, value) }
	if len(flags) == 0 {
		add("first plane in a process, ms", all[0].Milliseconds)
	}
	if len(all) == 1 {
		return nil
	}
	var further []float64
	for _, c := range all[1:] {
		further = append(further, c.Milliseconds)
	}
	end, n := all[len(all)-1], float64(len(further))
	add(fmt.Sprintf("%s of %d, ms", what, l.planes), quantile(further, 0.5))
	add(what+": heap, MiB", mib((end.Heap-all[0].Heap)/n))
	add(what+": RSS, MiB", mib((last.rss-first.rss)/n))
	add(what+": goroutines", (end.Goroutines-all[0].Goroutines)/n)
	return nil
}
