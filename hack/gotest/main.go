// Command gotest runs tests with gotestsum, then runs each failed test again,
// alone.
//
//	gotest -gotestsum bin/gotestsum -dir . -log bin/tests.json -flaky bin/flaky -timeout 60m ./...
//
// Arguments after its own flags are those of `go test`; the packages begin with "./"
// and come last. A test that fails is run again up to twice. When it passes it
// is named at the end, and in the file of -flaky, as in
//
//	FLAKY: example.com/shop TestOrder (failed 1 of 2)
//
// and the run passes. Other failures are not tried again: a package that does
// not build, panics, has a data race, or fails outside of its tests. gotestsum's
// own --rerun-fails mistakes a failed TestMain, or a process that ended early,
// for a failed test, and a result that go test cached for a run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
)

const (
	// reruns is how often a test that failed is run again.
	reruns = 2
	// maxFailures is the most failed tests that are run again: more are not
	// flaky.
	maxFailures = 10
)

// runner runs tests of one module, with the same flags each time.
type runner struct {
	gotestsum string
	dir       string // of the module
	log       string // the output of go test -json of the first run
	flaky     string // file to which the names of flaky tests are added
	args      []string
	packages  []string
	out       io.Writer
}

func main() {
	r := runner{out: os.Stdout}
	flags := flag.NewFlagSet("gotest", flag.ExitOnError)
	flags.StringVar(&r.gotestsum, "gotestsum", "gotestsum", "the program gotestsum")
	flags.StringVar(&r.dir, "dir", ".", "directory of the module")
	flags.StringVar(&r.log, "log", "", "file that gets the output of all tests, as go test -json writes it")
	flags.StringVar(&r.flaky, "flaky", "", "file to which the names of flaky tests are added")
	own, args := split(os.Args[1:])
	_ = flags.Parse(own) // ends the program after an error
	for i, arg := range args {
		if strings.HasPrefix(arg, "./") {
			r.args, r.packages = args[:i], args[i:]
			break
		}
	}
	// gotestsum is interrupted along with us, and ends the tests.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
}

// split separates our own flags, which come first and are written "-flag value", from those of go
// test.
func split(args []string) (own, rest []string) {
	ours := map[string]bool{"-gotestsum": true, "-dir": true, "-log": true, "-flaky": true}
	n := 0
	for n+1 < len(args) && ours[args[n]] {
		n += 2
	}
	return args[:n], args[n:]
}

// run runs all tests, and the failed ones again. It returns an error if one of
// these does not pass then.
func (r *runner) run(ctx context.Context) error {
	if len(r.packages) == 0 {
		return errors.New("no packages: give some that begin with ./ after the flags of go test")
	}
	var err error
	if r.log, err = filepath.Abs(r.log); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.log), 0o750); err != nil {
		return err
	}
	if err := add(r.flaky, nil); err != nil {
		return err
	}
	failure := r.test(r.log, r.packages)
	if failure == nil || ctx.Err() != nil {
		return failure
	}
	// Exit code 1 means failed tests or packages that do not build.
	var exit *exec.ExitError
	if !errors.As(failure, &exit) || exit.ExitCode() != 1 {
		return failure
	}
	results, err := readLog(r.log)
	if err != nil {
		return errors.Join(failure, err)
	}
	r.showNeighbours(results)
	return r.again(ctx, results)
}

// again runs each failed test alone, prints the results, and returns an error
// unless all passed.
func (r *runner) again(ctx context.Context, results []*result) error {
	var lasting, flaky []string
	count := 0
	for _, p := range results {
		count += len(p.failed)
		if p.trouble != "" {
			lasting = append(lasting, p.pkg+" "+p.trouble)
		}
	}
	if count == 0 && len(lasting) == 0 {
		return errors.New("go test failed, but no package did: see its output")
	}
	if count > maxFailures {
		return fmt.Errorf("%d tests failed: none is run again when more than %d fail", count, maxFailures)
	}
	for _, p := range results {
		if p.trouble != "" {
			continue
		}
		for _, test := range p.failed {
			failed := r.alone(ctx, p.pkg, test)
			if failed > reruns {
				lasting = append(lasting, fmt.Sprintf("%s %s failed each of %d times", p.pkg, test, failed))
				continue
			}
			flaky = append(flaky, fmt.Sprintf("FLAKY: %s %s (failed %d of %d)\n", p.pkg, test, failed, failed+1))
		}
	}
	fmt.Fprint(r.out, "\n", strings.Join(flaky, ""))
	if err := add(r.flaky, flaky); err != nil {
		return err
	}
	if len(lasting) > 0 {
		return fmt.Errorf("failed:\n  %s", strings.Join(lasting, "\n  "))
	}
	return ctx.Err()
}

// alone runs a failed test until it passes, and returns how often it failed in
// total.
func (r *runner) alone(ctx context.Context, pkg, test string) int {
	failed := 1
	for ; failed <= reruns && ctx.Err() == nil; failed++ {
		fmt.Fprintf(r.out, "\n== %s %s once more, alone\n", pkg, test)
		log := r.log + ".again"
		err := r.test(log, []string{"-count=1", "-run=^" + regexp.QuoteMeta(test) + "$", pkg})
		if err != nil {
			continue
		}
		// A test that was skipped or not found did not pass.
		if results, err := readLog(log); err == nil && len(results) == 1 && results[0].passed[test] {
			return failed
		}
	}
	return failed
}

// test runs gotestsum once.
func (r *runner) test(log string, more []string) error {
	args := append([]string{
		"--format=pkgname-and-test-fails", "--format-hide-empty-pkg", "--format-icons=text", "--hide-summary=skipped",
		"--no-color", "--jsonfile=" + log, "--",
	}, r.args...)
	cmd := exec.Command(r.gotestsum, append(args, more...)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.dir, r.out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("gotestsum: %w", err)
	}
	return nil
}

// showNeighbours prints output of failed packages that gotestsum omits: lines
// printed while a test ran that passed. Logs of servers and reports of the race
// detector appear under the test that printed last.
func (r *runner) showNeighbours(results []*result) {
	for _, p := range results {
		lines := p.neighbours()
		if len(lines) == 0 {
			continue
		}
		fmt.Fprintf(r.out, "\n== %s printed beside tests that failed:\n%s", p.pkg, strings.Join(lines, ""))
	}
}

// add appends lines to a file, and creates it even if there are none.
func add(name string, lines []string) error {
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(lines, ""))
	return errors.Join(err, f.Close())
}
