package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

// result is the result of one package that failed.
type result struct {
	pkg     string
	failed  []string        // tests, without their subtests
	passed  map[string]bool // the same
	running map[string]bool // tests that began but did not end
	trouble string          // the failure that is not of a test, if any
	broken  bool            // the package failed
	output  []event
}

// event is a line of `go test -json`, described in `go doc test2json`.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	FailedBuild string
}

// readLog returns the results of the packages that failed. For a log of one
// package it always returns the result.
func readLog(name string) ([]*result, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	byName := map[string]*result{}
	var all []*result
	for lines := json.NewDecoder(f); ; {
		var e event
		if err := lines.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if e.Package == "" {
			continue // the output of a build
		}
		p := byName[e.Package]
		if p == nil {
			p = &result{pkg: e.Package, passed: map[string]bool{}, running: map[string]bool{}}
			byName[e.Package] = p
			all = append(all, p)
		}
		p.see(e)
	}
	if len(all) == 1 {
		all[0].judge()
		return all, nil
	}
	var broken []*result
	for _, p := range all {
		if p.broken {
			p.judge()
			broken = append(broken, p)
		}
	}
	return broken, nil
}

// see records an event.
func (p *result) see(e event) {
	root := e.Test != "" && !strings.Contains(e.Test, "/")
	switch {
	case e.Action == "output":
		p.output = append(p.output, e)
	case root && e.Action == "run":
		p.running[e.Test] = true
	case root && (e.Action == "pass" || e.Action == "skip"):
		delete(p.running, e.Test)
		p.passed[e.Test] = e.Action == "pass"
	case root && e.Action == "fail":
		delete(p.running, e.Test)
		p.failed = append(p.failed, e.Test)
	case e.Test == "" && e.Action == "fail":
		p.broken = true
		if e.FailedBuild != "" {
			p.trouble = "does not build"
		}
	}
}

// judge finds failures that are not of a test.
func (p *result) judge() {
	for _, e := range p.output {
		switch {
		case strings.HasPrefix(e.Output, "WARNING: DATA RACE"):
			p.trouble = "has a data race"
		case strings.HasPrefix(e.Output, "panic: "), strings.HasPrefix(e.Output, "fatal error: "):
			p.trouble = "panicked: its other tests may not have run"
		}
	}
	switch {
	case p.trouble != "" || !p.broken:
	case len(p.running) > 0:
		p.trouble = "ended while tests ran: other tests may not have run"
	case len(p.failed) == 0:
		p.trouble = "failed outside of its tests"
	}
}

// neighbours returns the output under passed tests, without their own log lines
// and those of go test.
func (p *result) neighbours() []string {
	own := regexp.MustCompile(`^(=== |\s*--- |\s+\S+\.go:\d+: )`)
	shown := map[string]bool{"": true}
	for _, test := range p.failed {
		shown[test] = true
	}
	for test := range p.running {
		shown[test] = true
	}
	var lines []string
	for _, e := range p.output {
		root, _, _ := strings.Cut(e.Test, "/")
		if !shown[root] && !own.MatchString(e.Output) {
			lines = append(lines, e.Output)
		}
	}
	return lines
}
