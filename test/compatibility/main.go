// Command compatibility runs programs that people use with Kubernetes against
// "sailplane serve": it builds them from their published modules, or installs them from
// npm, as they are, and has each do what it is for, in a script of programs/. It writes
// docs/compatibility.md.
//
//	go -C test run ./compatibility -help
//
// A script is in the language of github.com/rogpeppe/go-internal/testscript, with the
// commands of test/script and those of commands.go. Its comments are the steps that the
// page lists. What is built is kept in the user's cache: the first run takes an hour or
// two, those after it minutes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sailplane-dev/sailplane/test/script"
)

func main() {
	testscript.Main(command{}, map[string]func(){"get": get})
}

// command is this program when it is called by its own name.
type command struct{}

func (command) Run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "compatibility:", err)
		return 1
	}
	return 0
}

// lab is what all programs have in common.
type lab struct {
	root  string // of the repository
	cache string // for what is built, and the logs of the last run
	log   io.Writer
}

// say writes one line of progress.
func (l *lab) say(format string, args ...any) {
	fmt.Fprintf(l.log, "%s %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

func run(ctx context.Context, args []string, log io.Writer) error {
	flags := flag.NewFlagSet("compatibility", flag.ContinueOnError)
	flags.SetOutput(log)
	only := flags.String("only", "", "run these programs only, separated by commas, and leave the page as it is")
	page := flags.String("page", "", "write the results to this file, when all programs have run")
	cache := flags.String("cache", "", "folder for what is built and for logs (default: sailplane-compatibility in the user's cache)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("there are no arguments, only flags: %q", flags.Args())
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	l := &lab{cache: *cache, log: log}
	if l.cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return fmt.Errorf("%w: give a folder with -cache", err)
		}
		l.cache = filepath.Join(dir, "sailplane-compatibility")
	}
	if l.root, err = l.command(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sailplane-dev/sailplane"); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "sailplane-compatibility-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	l.say("build sailplane")
	if err := script.Build(ctx, dir); err != nil {
		return err
	}
	results, err := l.runAll(ctx, chosen)
	if err != nil {
		return err
	}
	if *page != "" && *only == "" {
		// It says what failed, too.
		description, err := l.describe(ctx)
		if err != nil {
			return err
		}
		if err := os.WriteFile(*page, []byte(render(description, results)), 0o600); err != nil {
			return err
		}
	}
	var failed []string
	for _, r := range results {
		if r.failure != "" {
			failed = append(failed, r.program.name)
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d programs failed: %s; their logs are in %s",
			len(failed), len(results), strings.Join(failed, ", "), filepath.Join(l.cache, "logs"))
	}
	return nil
}

// choose finds programs by name; an empty list is all of them.
func choose(list string) ([]program, error) {
	all := programs()
	if list == "" {
		return all, nil
	}
	var chosen []program
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(all, func(p program) bool { return p.name == name })
		if i < 0 {
			names := make([]string, 0, len(all))
			for _, p := range all {
				names = append(names, p.name)
			}
			return nil, fmt.Errorf("-only: there is no program %q; there are: %s", name, strings.Join(names, ", "))
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// result is what came of one program's script.
type result struct {
	program program
	steps   []string
	// failure is empty when all steps are true.
	failure string
}

// runAll builds the programs and runs their scripts, one after the other.
// An error is for what prevents all of them.
func (l *lab) runAll(ctx context.Context, chosen []program) ([]result, error) {
	var results []result
	for _, p := range chosen {
		steps, err := p.steps(l.root)
		if err != nil {
			return nil, err
		}
		r := result{program: p, steps: steps}
		if err := l.try(ctx, p); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			r.failure = err.Error()
			l.say("%s: FAILED\n%s", p.name, r.failure)
		}
		results = append(results, r)
	}
	return results, nil
}

// try builds a program, and what it uses, and runs its script.
func (l *lab) try(ctx context.Context, p program) error {
	var folders []folder
	for _, name := range append(slices.Clone(p.uses), p.name) {
		used, err := choose(name)
		if err != nil {
			return err
		}
		for _, s := range used[0].sources {
			f, err := s.fetch(ctx, l)
			if err != nil {
				return err
			}
			folders = append(folders, f...)
		}
	}
	l.say("%s: run", p.name)
	begun := time.Now()
	if err := l.runScript(p, folders); err != nil {
		return err
	}
	l.say("%s: passed in %v", p.name, time.Since(begun).Round(time.Second))
	return nil
}
