//go:build unix

package kine

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

// The tests run this binary once more, so that a test of the contract may fail
// and be expected to, and everything a process says can be read. These are the
// variables that tell it what to do.
const (
	childEngine = "SAILPLANE_TEST_ENGINE"
	childURL    = "SAILPLANE_TEST_URL"
	childFirst  = "SAILPLANE_TEST_FIRST"
)

// engine is a driver with a database to run it on.
type engine struct {
	// start runs the database until the test ends and returns the URL of what is
	// in it, with %d for a number.
	start func(t *testing.T) string
	// password is that of the URL, as it is. Empty: nobody logs in.
	password string
	// storage describes the storage at a URL, for which a start waits as long as
	// given.
	storage func(url string, timeout time.Duration) controlplane.Storage
	// breaks are the tests of the contract that fail, each time, with the reason.
	breaks map[string]string
	// random are those that fail at times, or take minutes to, with the reason.
	// They are not run.
	random map[string]string
}

// engines are the drivers, by the scheme of their URL.
func engines() map[string]engine {
	return map[string]engine{
		"postgres": postgresEngine(),
		"mysql":    mysqlEngine(),
		"nats":     natsEngine(),
		"t4":       t4Engine(),
	}
}

// Why a test of the contract does not hold.
const (
	deleteOfNothing  = "the deletion of a key that never was succeeds"
	alwaysPrevious   = "every event has its previous value, asked for or not, and no event is filtered"
	newestStays      = "a compaction keeps the newest revision, and says so"
	lateCommits      = "a revision is given before its write is visible: who lists and then watches misses writes"
	deleteOfDeleted  = "who deletes a key at the same time as another is given the mark of the deletion"
	dropsUnread      = "a compaction may drop what a watch has not been told yet"
	watchFromNow     = "a watch from now on may begin with older events"
	lateEvents       = "an event may come after the notification of progress to its revision"
	compactsAnything = "a compaction of the future or of what was compacted is no error, and a read at the compacted revision is one"
	earlyProgress    = "a notification of progress may be older than the request for it"
)

// TestContract compares what holds on each database with what this package and
// docs/storage/kine.md say.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, e := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := e.start(t)
			skip := named(slices.Concat(slices.Collect(maps.Keys(e.breaks)), slices.Collect(maps.Keys(e.random)))...)
			output := child(t, name, url, 0, "-test.skip="+skip)
			passed := regexp.MustCompile(`(?m)^ {4}--- PASS: TestChild/`).FindAllString(output, -1)
			t.Logf("%d tests of the contract hold", len(passed))
			if len(passed) == 0 || !strings.HasSuffix(output, "PASS\n") {
				t.Errorf("what should hold does not:\n%s", output)
			}
			for i, test := range slices.Sorted(maps.Keys(e.breaks)) {
				output := child(t, name, url, i+1, "-test.run="+named(test))
				switch {
				case !strings.Contains(output, "=== RUN   TestChild/"+strings.ReplaceAll(test, " ", "_")+"\n"):
					t.Errorf("%q is on the list and did not run:\n%s", test, output)
				case strings.HasSuffix(output, "PASS\n"):
					t.Errorf("%q holds: take it off the list and correct docs/storage/kine.md", test)
				}
			}
		})
	}
}

// named is the pattern of tests of the contract.
func named(tests ...string) string {
	return "^TestChild$/^(" + strings.ReplaceAll(strings.Join(tests, "|"), " ", "_") + ")$"
}

// TestChild is the contract, in the process that TestContract starts.
func TestChild(t *testing.T) {
	e, found := engines()[os.Getenv(childEngine)]
	if !found {
		t.Skip("another test runs this one")
	}
	url := os.Getenv(childURL)
	var n atomic.Int64
	first, err := strconv.ParseInt(os.Getenv(childFirst), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	n.Store(first)
	storagetest.Run(t, func() controlplane.Storage { return e.storage(fmt.Sprintf(url, n.Add(1)), startTimeout) })
}

// child runs TestChild in another process and returns what that says. Each has
// storages of its own.
func child(t *testing.T, engine, url string, number int, flags ...string) string {
	t.Helper()
	flags = append([]string{"-test.run=^TestChild$", "-test.v", "-test.timeout=20m"}, flags...)
	c := exec.CommandContext(t.Context(), os.Args[0], flags...)
	c.Env = append(os.Environ(), childEngine+"="+engine, childURL+"="+url, fmt.Sprintf("%s=%d", childFirst, number*1000))
	output := &bytes.Buffer{}
	c.Stdout = output
	c.Stdout, c.Stderr = output, output
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	return output.String()
}

// lacking ends a test for want of a program: with an error where nothing may be
// missing.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("SAILPLANE_CI") != "" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// TestPageHasTheTable compares the table of the page with the lists.
func TestPageHasTheTable(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/storage/kine.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"| test | " + strings.Join(columns(), " | ") + " | where it does not hold |"}
	all := map[string]bool{}
	for _, e := range engines() {
		for test := range e.breaks {
			all[test] = true
		}
		for test := range e.random {
			all[test] = true
		}
	}
	for _, test := range slices.Sorted(maps.Keys(all)) {
		want = append(want, row(test))
	}
	for _, line := range want {
		if !strings.Contains(string(page), line+"\n") {
			t.Errorf("docs/storage/kine.md lacks this line:\n%s", line)
		}
	}
	if got := strings.Count(string(page), "| holds |"); got == 0 {
		t.Error("docs/storage/kine.md has no table")
	}
}

func columns() []string { return slices.Sorted(maps.Keys(engines())) }

// row is the line of the page on a test that does not hold everywhere.
func row(test string) string {
	cells := []string{"|", test}
	var why []string
	for _, name := range columns() {
		e := engines()[name]
		cell := "holds"
		for verdict, list := range map[string]map[string]string{"no": e.breaks, "not promised": e.random} {
			if reason, found := list[test]; found {
				cell = verdict
				if !slices.Contains(why, reason) {
					why = append(why, reason)
				}
			}
		}
		cells = append(cells, "|", cell)
	}
	return strings.Join(append(cells, "|", strings.Join(why, "; "), "|"), " ")
}
