package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/test/program"
)

// cpu is what the server's processes have used so far.
func (s *server) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, p := range s.processes {
		t, err := program.CPUTime(p.cmd.Process.Pid)
		if err != nil {
			return 0, err
		}
		sum += t
	}
	return sum, nil
}

// spent is the CPU time the server's processes use while f runs.
func (s *server) spent(f func() error) (time.Duration, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	if err := f(); err != nil {
		return 0, err
	}
	after, err := s.cpu()
	return after - before, err
}

// usage is in bytes, of all processes of a server.
type usage struct {
	rss, pss float64
	// anonymous is what of rss is not of a file: not the binary.
	anonymous float64
}

// memory reads what of the server is resident.
func (s *server) memory() (usage, error) {
	var m usage
	for _, p := range s.processes {
		name := fmt.Sprintf("/proc/%d/smaps_rollup", p.cmd.Process.Pid)
		b, err := os.ReadFile(name)
		if err != nil {
			return m, err
		}
		for line := range strings.Lines(string(b)) {
			fields := strings.Fields(line)
			if len(fields) != 3 {
				continue
			}
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return m, fmt.Errorf("%s: %q: %w", name, line, err)
			}
			switch fields[0] {
			case "Rss:":
				m.rss += kib * 1024
			case "Pss:":
				m.pss += kib * 1024
			case "Anonymous:":
				m.anonymous += kib * 1024
			}
		}
	}
	return m, nil
}

// metrics reads those of the server's /metrics that have no labels.
func (s *server) metrics(ctx context.Context) (map[string]float64, error) {
	if s.scraper == nil {
		var err error
		if s.scraper, err = s.clientset(""); err != nil {
			return nil, err
		}
	}
	return scrape(ctx, s.scraper)
}

// collected returns the metrics as soon as the API server has collected its garbage
// twice: what was made while the first collection ran is live until the second.
// That it is asked for them makes enough garbage.
func (s *server) collected(ctx context.Context) (map[string]float64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("the garbage was never collected"))
	defer cancel()
	for end := 0.0; ; {
		m, err := s.metrics(ctx)
		if err != nil {
			return nil, errors.Join(err, context.Cause(ctx))
		}
		cycles := m["go_gc_cycles_total_gc_cycles_total"]
		if end == 0 {
			end = cycles + 2
		}
		if cycles >= end {
			return m, nil
		}
	}
}

func scrape(ctx context.Context, c *kubernetes.Clientset) (map[string]float64, error) {
	text, err := c.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("/metrics: %w", err)
	}
	found := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(name, "#") || strings.Contains(name, "{") {
			continue
		}
		if found[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, fmt.Errorf("/metrics: %q: %w", line, err)
		}
	}
	return found, nil
}
