//go:build unix

package kine

import (
	"bytes"
	"context"
	"errors"
	"flag"
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

	clientv3 "go.etcd.io/etcd/client/v3"

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
	// lacks are the tests of the contract that are not expected to pass, by group
	// and name. They only run with -all.
	lacks map[string]lack
}

// engines are the drivers, by the scheme of their URL.
func engines() map[string]engine {
	return map[string]engine{
		"nats": natsEngine(),
		"t4":   t4Engine(),
	}
}

// TestMain adds a flag: with -all, TestContract also runs what is not expected to
// pass, and says how that went.
func TestMain(m *testing.M) {
	flag.Bool("all", false, "also run the tests of the contract that are not expected to pass, and print a table (with -v)")
	flag.Parse()
	os.Exit(m.Run())
}

// TestContract runs the tests of the contract that hold on each database.
func TestContract(t *testing.T) {
	t.Parallel()
	for name, e := range engines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kept := slices.DeleteFunc(contract(), func(test string) bool {
				_, found := e.lacks[test]
				return found
			})
			url := e.start(t)
			output := child(t, name, url, 0, "-test.run="+pattern(kept...))
			results := resultsIn(output)
			for _, test := range kept {
				if r := results[test]; r.verdict != "PASS" {
					t.Errorf("%q holds on %s, says this package, and its result is %q", test, name, r.verdict)
				}
			}
			if t.Failed() || !strings.HasSuffix(output, "PASS\n") {
				t.Fatalf("what holds on %s does not:\n%s", name, output)
			}
			t.Logf("%d of %d tests of the contract hold", len(kept), len(contract()))
			if flag.Lookup("all").Value.String() == "true" {
				t.Logf("the rest:\n%s", e.runRest(t, name, url))
			}
		})
	}
}

// runRest runs the tests that are not expected to pass, each in a process of its
// own, and returns a table of how it went.
func (e engine) runRest(t *testing.T, name, url string) string {
	t.Helper()
	said := regexp.MustCompile(`(?m)^ +\w+\.go:\d+: (.*)$`)
	rows := []string{"| test | expected | result | took | said |", "|---|---|---|---|---|"}
	for i, test := range slices.Sorted(maps.Keys(e.lacks)) {
		output := child(t, name, url, i+1, "-test.run="+pattern(test), "-test.timeout=1m")
		r := resultsIn(output)[test]
		switch {
		case strings.Contains(output, "panic: test timed out"):
			r = result{"no end", "1m"}
		case r.verdict == "":
			r = result{"the process ended", ""}
		}
		line := ""
		if m := said.FindStringSubmatch(output); m != nil && r.verdict != "PASS" {
			line = m[1]
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %.120s |", test, e.lacks[test].verdict, r.verdict, r.took, line))
	}
	return strings.Join(rows, "\n")
}

// TestContractIsListed has every test of the contract in the list of this
// package: a new one belongs into it, and where it does not hold, into the lacks
// of that engine too.
func TestContractIsListed(t *testing.T) {
	t.Parallel()
	have, listed := resultsIn(child(t, listing, "", 0)), contract()
	for test := range have {
		if !slices.Contains(listed, test) {
			t.Errorf("%q is a test of the contract and not in the list", test)
		}
	}
	for _, test := range listed {
		if _, found := have[test]; !found {
			t.Errorf("%q is in the list and no test of the contract", test)
		}
	}
	for name, e := range engines() {
		for test := range e.lacks {
			if !slices.Contains(listed, test) {
				t.Errorf("%s lacks %q, which is no test of the contract", name, test)
			}
		}
	}
}

// result is how a test of the contract ended, and the time it took.
type result struct{ verdict, took string }

// resultsIn are the results in what TestChild said, by group and name.
func resultsIn(output string) map[string]result {
	results := map[string]result{}
	for _, m := range regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): TestChild/([^/\n]+/[^/\n]+) \((.*)\)$`).FindAllStringSubmatch(output, -1) {
		results[strings.ReplaceAll(m[2], "_", " ")] = result{m[1], m[3]}
	}
	return results
}

// pattern matches tests of the contract, and no others.
func pattern(tests ...string) string {
	patterns := make([]string, len(tests))
	for i, test := range tests {
		group, name, _ := strings.Cut(strings.ReplaceAll(test, " ", "_"), "/")
		patterns[i] = "^TestChild$/^" + regexp.QuoteMeta(group) + "$/^" + regexp.QuoteMeta(name) + "$"
	}
	return strings.Join(patterns, "|")
}

// listing is the engine whose storage does not start: every test of the contract
// tries it and fails at once, so it tells their names.
const listing = "none"

// TestChild is the contract, in the process that another test starts.
func TestChild(t *testing.T) {
	if os.Getenv(childEngine) == listing {
		storagetest.Run(t, func(testing.TB) controlplane.Storage { return unstartable{} })
		return
	}
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
	storagetest.Run(t, func(testing.TB) controlplane.Storage { return e.storage(fmt.Sprintf(url, n.Add(1)), startTimeout) })
}

// unstartable is a storage that does not start.
type unstartable struct{}

func (u unstartable) Open() controlplane.Backend      { return u }
func (unstartable) Traits() controlplane.Traits       { return controlplane.Traits{} }
func (unstartable) Start(context.Context) error       { return errors.ErrUnsupported }
func (unstartable) Client() (*clientv3.Client, error) { return nil, errors.ErrUnsupported }
func (unstartable) Stop(context.Context) error        { return nil }

// child runs TestChild in another process and returns what that says. Each has
// storages of its own.
func child(t *testing.T, engine, url string, number int, flags ...string) string {
	t.Helper()
	flags = append([]string{"-test.run=^TestChild$", "-test.v", "-test.timeout=8m"}, flags...)
	c := exec.CommandContext(t.Context(), os.Args[0], flags...)
	c.Env = append(os.Environ(), childEngine+"="+engine, childURL+"="+url, fmt.Sprintf("%s=%d", childFirst, number*1000))
	output := &bytes.Buffer{}
	c.Stdout, c.Stderr = output, output
	if err := c.Run(); c.ProcessState == nil {
		t.Fatal(err)
	}
	return output.String()
}
