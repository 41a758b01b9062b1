package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// binaries are a kube-apiserver and an etcd.
type binaries struct{ name, dir string }

// result is what came of the tests of a package, with each of the binaries.
type result struct {
	name string
	runs []outcome
}

// outcome is what came of one run.
type outcome struct {
	passed, skipped int
	failed          []failure
	took            time.Duration
}

// failure is a test that failed.
type failure struct{ name, message string }

// limit is how long the tests of a package may take; some wait for a minute.
const limit = 5 * time.Minute

// test builds the tests of a package and runs them with each of the binaries.
func (s *suite) test(ctx context.Context, name string, all []binaries) (result, error) {
	r := result{name: name}
	fmt.Fprintln(s.log, "build", name)
	program := filepath.Join(s.work, strings.ReplaceAll(name, "/", "_")+".test")
	// The modules are those of the copy, whatever workspace this one is in.
	env := []string{"GOWORK=off", "GOFLAGS=-mod=mod -pgo=off"}
	if _, err := output(ctx, s.source(), env, "go", "test", "-vet=off", "-c", "-o", program, "./"+name); err != nil {
		return r, err
	}
	for _, b := range all {
		o, err := s.try(ctx, name, program, b)
		if err != nil {
			return r, err
		}
		fmt.Fprintf(s.log, "%s with %s: %d passed, %d failed in %v\n", name, b.name, o.passed, len(o.failed), o.took.Round(time.Second))
		for _, f := range o.failed {
			fmt.Fprintf(s.log, "  %s: %s\n", f.name, f.message)
		}
		r.runs = append(r.runs, o)
	}
	return r, nil
}

// try runs the tests of a package once.
func (s *suite) try(ctx context.Context, name, program string, b binaries) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	report := filepath.Join(s.work, "report.json")
	if err := os.Remove(report); err != nil && !errors.Is(err, os.ErrNotExist) {
		return outcome{}, err
	}
	c := exec.CommandContext(ctx, program, "-test.v", "-test.timeout="+limit.String(), "-ginkgo.no-color", "-ginkgo.json-report="+report)
	c.Dir, c.Env = filepath.Join(s.source(), filepath.FromSlash(name)), append(os.Environ(), "KUBEBUILDER_ASSETS="+b.dir, s.mark())
	var printed bytes.Buffer
	c.Stdout, c.Stderr = &printed, &printed
	begun := time.Now()
	err := c.Run()
	took := time.Since(begun)
	s.sweep(name)
	if s.verbose {
		fmt.Fprintf(s.log, "%s\n", printed.Bytes())
	}
	if failed := (&exec.ExitError{}); err != nil && !errors.As(err, &failed) {
		return outcome{}, fmt.Errorf("%s: %w", name, err)
	}
	o, readErr := read(report, printed.String())
	o.took = took
	if readErr != nil {
		return o, fmt.Errorf("%s: %w\n%s", name, readErr, &printed)
	}
	if err != nil && len(o.failed) == 0 {
		return o, fmt.Errorf("%s: %w, and no test says why\n%s", name, err, &printed)
	}
	return o, nil
}

// mark is a variable that the processes of this run have, and no others.
func (s *suite) mark() string { return "ENVTEST_SUITE=" + s.work }

// sweep ends what the tests of a package left behind, where the system tells:
// some of them forget an API server that they started.
func (s *suite) sweep(name string) {
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return
	}
	for _, file := range all {
		env, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), s.mark()) {
			continue
		}
		id, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			continue
		}
		if p, err := os.FindProcess(id); err == nil && p.Kill() == nil {
			fmt.Fprintf(s.log, "%s left process %d\n", name, id)
		}
	}
}

// suiteReport is what we read of ginkgo's report.
type suiteReport struct {
	SpecReports []struct {
		ContainerHierarchyTexts    []string
		LeafNodeType, LeafNodeText string
		State                      string
		Failure                    struct{ Message string }
	}
}

// goTest is a line of a test that is none of ginkgo's.
var goTest = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)

// read reads the outcome from ginkgo's report, which a package without it has
// not, and from what was printed of other tests.
func read(report, printed string) (outcome, error) {
	var o outcome
	var reports []suiteReport
	content, err := os.ReadFile(report)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return o, err
	}
	if err == nil {
		if err := json.Unmarshal(content, &reports); err != nil {
			return o, fmt.Errorf("ginkgo's report: %w", err)
		}
	}
	specs := false
	for _, r := range reports {
		for _, spec := range r.SpecReports {
			name := strings.Join(append(slices.Clone(spec.ContainerHierarchyTexts), spec.LeafNodeText), " ")
			switch {
			case spec.State == "passed" && spec.LeafNodeType == "It":
				o.passed++
			case spec.State == "pending" || spec.State == "skipped":
				o.skipped++
			case spec.State != "passed":
				if name == "" {
					name = spec.LeafNodeType
				}
				o.failed = append(o.failed, failure{name: name, message: firstLine(spec.Failure.Message)})
			}
		}
		specs = specs || len(r.SpecReports) > 0
	}
	o.add(goTest.FindAllStringSubmatch(printed, -1), specs)
	return o, nil
}

// add adds tests that are none of ginkgo's. Where there are specs, one runs them
// and counts as these; where a test has others below it, those count.
func (o *outcome) add(tests [][]string, specs bool) {
	for _, t := range tests {
		parent := slices.ContainsFunc(tests, func(other []string) bool { return strings.HasPrefix(other[2], t[2]+"/") })
		if parent || specs {
			continue
		}
		switch t[1] {
		case "PASS":
			o.passed++
		case "SKIP":
			o.skipped++
		case "FAIL":
			o.failed = append(o.failed, failure{name: t[2], message: "see -v"})
		}
	}
}

// firstLine is as much of a message as a table has room for.
func firstLine(message string) string {
	const room = 200
	message = strings.Join(strings.Fields(message), " ")
	if len(message) > room {
		message = message[:room] + "..."
	}
	return message
}
