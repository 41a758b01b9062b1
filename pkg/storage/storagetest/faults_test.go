package storagetest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// faultVariable names the fault that the contract runs with, in a process of its
// own: there its tests are to fail.
const faultVariable = "STORAGETEST_FAULT"

// TestFaults shows that the contract can fail. Each storage has one fault, and
// runs in a process of its own; the names of the tests that failed are read from
// what it prints.
func TestFaults(t *testing.T) {
	if name := os.Getenv(faultVariable); name != "" {
		wait := 2 * time.Second // for what a fault keeps from coming
		if len(faults()[name].fail) == 0 {
			wait = patience
		}
		Run(t, func(testing.TB) controlplane.Storage { return faulty{memory.Store{}, faults()[name].fault} }, withPatience(wait))
		return
	}
	for name, c := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed, output := runFaulty(t, name)
			for _, want := range c.fail {
				if !slices.Contains(failed, want) {
					t.Errorf("%s: %q passed, want it to fail; these failed: %q\n%s", c.reason, want, failed, output)
				}
			}
			if len(c.fail) == 0 && len(failed) > 0 {
				t.Errorf("%s: %q failed\n%s", c.reason, failed, output)
			}
			t.Logf("failed: %q", failed)
		})
	}
}

// faultCase is a fault and the tests that find it, by group and name.
type faultCase struct {
	fault  fault
	fail   []string
	reason string
}

func faults() map[string]faultCase {
	return map[string]faultCase{
		"none": {reason: "the storage below keeps the contract"},
		"revision used twice": {
			fault{revision: twice},
			[]string{"revisions/are_global_and_one_for_each_write", "revisions/are_used_once_by_16_writers"},
			"every fifth write has the revision of the one before",
		},
		"list lags behind": {
			fault{lag: 3},
			[]string{
				"revisions/never_go_back_for_a_client", "revisions/are_global_and_one_for_each_write",
				"reads/are_newest,_at_least_and_exact",
			},
			"a list is of some writes ago, and says so",
		},
		"list older than its revision": {
			fault{lag: 3, hidesLag: true},
			[]string{"revisions/never_go_back_for_a_client", "watches/miss_nothing_after_a_list"},
			"a list is of some writes ago, and has the newest revision",
		},
		"event ahead of reads": {
			fault{lagOfOne: 1},
			[]string{"watches/tell_nothing_that_a_read_does_not_show"},
			"a key is read as it was before the last write",
		},
		"event dropped": {
			fault{stream: dropped},
			[]string{
				"watches/replay_what_came_after,_in_order", "watches/begin_5000_events_back", "watches/miss_nothing_after_a_list",
				"revisions/are_used_once_by_16_writers",
			},
			"every fiftieth event does not come",
		},
		"event doubled": {
			fault{stream: doubled},
			[]string{"watches/replay_what_came_after,_in_order", "watches/begin_5000_events_back", "watches/miss_nothing_after_a_list"},
			"every fiftieth event comes twice",
		},
		"event out of order": {
			fault{stream: swapped},
			[]string{"watches/replay_what_came_after,_in_order", "watches/begin_5000_events_back", "watches/miss_nothing_after_a_list"},
			"every fiftieth event comes after the next one",
		},
		"progress ahead of events": {
			fault{stream: hasty},
			[]string{"progress/comes_after_its_events"},
			"a notification of progress comes before an event it counts",
		},
		"write not checked": {
			fault{blind: true},
			[]string{"writes/hold_only_at_the_revision_they_expect"},
			"an update overwrites what another one wrote",
		},
	}
}

// runFaulty runs the contract with a fault and returns the tests that failed.
func runFaulty(t *testing.T, name string) (failed []string, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.v", "-test.short", "-test.run",
		"^TestFaults$/^(revisions|writes|reads|watches|progress)$")
	cmd.Env = append(os.Environ(), faultVariable+"="+name)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("the contract does not end: %v\n%s", err, out.String())
	}
	lines := regexp.MustCompile(`(?m)^ *--- (PASS|FAIL): TestFaults/([^/ ]+/[^/ ]+) `).FindAllStringSubmatch(out.String(), -1)
	if len(lines) == 0 {
		t.Fatalf("no test ran: %v\n%s", err, out.String())
	}
	for _, l := range lines {
		if l[1] == "FAIL" {
			failed = append(failed, l[2])
		}
	}
	if (err != nil) != (len(failed) > 0) || strings.Contains(out.String(), "panic:") {
		t.Errorf("%d tests failed, and the process ended with %v\n%s", len(failed), err, out.String())
	}
	return failed, out.String()
}
