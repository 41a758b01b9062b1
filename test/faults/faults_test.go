package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/sailplane-dev/sailplane/test/faults/disk"
	"github.com/sailplane-dev/sailplane/test/faults/verify"
	"github.com/sailplane-dev/sailplane/test/program"
)

var (
	seed   = flag.Uint64("seed", 0, "the seed of the first round of each test, instead of a random one")
	rounds = flag.Int("rounds", 0, "the rounds of each test, instead of what each has")
	keep   = flag.String("histories", "", "the directory for all histories, instead of one for those that are illegal")
)

// programs are built once.
var programs Programs

func TestMain(m *testing.M) {
	flag.Parse()
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "faults are made as Unix makes them")
		return
	}
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		programs, err = Build(ctx, dir)
		return err
	}}.Run())
}

// roundsOf is how many rounds of a fault a test has. Those of what can be shared take longest; one of two has two
// servers.
func roundsOf(engine, fault string) int {
	switch {
	case *rounds > 0:
		return *rounds
	case fault == None, isShared(engine):
		return 2
	}
	return 4
}

// TestFaults has clients work on each storage while each fault happens to it.
// Every history is legal, whatever was killed, full or cut.
func TestFaults(t *testing.T) {
	for engine, faults := range Plan() {
		t.Run(engine, func(t *testing.T) {
			for _, fault := range faults {
				t.Run(fault, func(t *testing.T) {
					t.Parallel()
					if fault == Power {
						needTrace(t)
					}
					several(t, Round{Engine: engine, Fault: fault})
				})
			}
		})
	}
}

// needTrace skips a test where no process can be traced, and in CI fails.
func needTrace(t *testing.T) {
	t.Helper()
	err := disk.Available()
	switch {
	case err == nil:
	case os.Getenv("SAILPLANE_CI") != "":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
}

// TestPowerLossIsFound loses power under storages that do not sync. What is
// lost is found, or else the tests of those that do sync say nothing.
func TestPowerLossIsFound(t *testing.T) {
	needTrace(t)
	for _, engine := range []string{SQLite, Etcd} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			r := Round{Engine: engine, Fault: Power, NoSync: true, Programs: programs, Work: t.TempDir(), Histories: t.TempDir()}
			const tries = 10
			for r.Seed = range uint64(tries) {
				result, err := r.Run(t.Context())
				if result == nil {
					t.Fatal(err)
				}
				if result.Lost > 0 && (err != nil || slices.ContainsFunc(result.Violations, rolledBack)) {
					t.Logf("seed %d: %d changes lost: %v %v", r.Seed, result.Lost, err, result.Violations)
					return
				}
			}
			t.Errorf("power was lost in %d rounds, and no acknowledged write with it", tries)
		})
	}
}

// rolledBack says whether a violation is that of acknowledged writes that were
// undone: revisions are given twice, or the watch sees them again.
func rolledBack(v verify.Violation) bool {
	return v.Check == verify.Unique || v.Check == verify.Order || v.Check == verify.Watch
}

// several runs the rounds of a test. A fault that leaves no write unanswered in any of
// them did not happen.
func several(t *testing.T, r Round) {
	t.Helper()
	r.Programs, r.Work, r.Histories = programs, t.TempDir(), *keep
	if r.Histories == "" {
		r.Histories = t.TempDir()
	}
	r.Seed = *seed
	if r.Seed == 0 {
		r.Seed = rand.Uint64N(1 << 32)
	}
	unanswered := 0
	for range roundsOf(r.Engine, r.Fault) {
		result := one(t, r)
		if result == nil {
			return
		}
		unanswered += result.Unanswered
		r.Seed++
	}
	if r.Fault != None && unanswered == 0 {
		t.Errorf("no write is unanswered: did the fault happen?")
	}
}

// one runs a round and keeps its history where something is wrong.
func one(t *testing.T, r Round) *Result {
	t.Helper()
	result, err := r.Run(t.Context())
	if result != nil {
		t.Logf("seed %d: %d faults, %d operations, %d writes unanswered, %d changes lost, %v",
			r.Seed, result.Faults, result.Ops, result.Unanswered, result.Lost, result.Took)
	}
	if err == nil && len(result.Violations) == 0 {
		return result
	}
	t.Errorf("again with: go -C test test ./faults -run '^%s$' -seed %d", t.Name(), r.Seed)
	if err != nil {
		t.Error(err)
	}
	if result == nil {
		return nil
	}
	for _, v := range result.Violations {
		t.Error(v)
	}
	t.Errorf("its history: %s", preserve(t, result.History))
	return result
}

// preserve moves a history and its picture where the end of the test leaves them.
func preserve(t *testing.T, path string) string {
	t.Helper()
	if *keep != "" {
		return path
	}
	dir, err := os.MkdirTemp("", "sailplane-history-")
	if err != nil {
		t.Error(err)
		return path
	}
	moved := filepath.Join(dir, filepath.Base(path))
	for _, suffix := range []string{"", ".html"} {
		content, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(moved+suffix, content, 0o600)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Error(err)
		}
	}
	return moved
}
