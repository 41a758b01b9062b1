//go:build unix

package kine

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// contract are the tests of the contract that every storage keeps, by group and
// name. TestContract runs each of them on every engine that does not lack it.
func contract() []string {
	return []string{
		"compaction/ends older revisions only",
		"compaction/is agreed on by servers",
		"compaction/leaves a clean list and watch",
		"keys/have bytewise order",
		"keys/hold every byte",
		"keys/of a prefix end at its last one",
		"leases/end in the order of their time",
		"leases/end the keys they hold, not before their time",
		"leases/spare what was written again",
		"leases/that nobody granted are refused",
		"lifecycle/outlives the context of its start",
		"lifecycle/start ends with its context",
		"lifecycle/start twice",
		"lifecycle/starts and stops leave nothing",
		"lifecycle/stop before start",
		"lifecycle/stop ends forgotten watches",
		"progress/comes after its events",
		"progress/reaches the newest revision",
		"reads/are newest, at least and exact",
		"reads/as streams are as ranges",
		"reads/in pages end at a compaction",
		"reads/in pages show one revision",
		"reads/of an empty list can be followed",
		"reads/of old revisions are exact",
		"reads/of what is missing have a revision",
		"revisions/are global and one for each write",
		"revisions/are used once by 16 writers",
		"revisions/never go back for a client",
		"revisions/show what was acknowledged",
		"scale/50000 objects under a prefix",
		"scale/a day of compactions bounds the size",
		"scale/a watcher that stops reading",
		"traits/CheapProgress answers at once",
		"traits/MaxOps keys fit one transaction",
		"traits/Shared is seen by other servers",
		"values/are copies",
		"values/of 0 bytes to 1.5 MiB are kept",
		"watches/begin 5000 events back",
		"watches/begin at their revision",
		"watches/miss nothing after a list",
		"watches/of one client end without those of other",
		"watches/of what was compacted are refused",
		"watches/replay what came after, in order",
		"watches/survive compactions",
		"watches/tell nothing that a read does not show",
		"watches/tell the previous value",
		"writes/hold only at the revision they expect",
		"writes/of 32 writers are all kept",
		"writes/of many deletes only one happens",
		"writes/of several keys are all or nothing",
	}
}

// lack is why a test of the contract is not run on an engine.
type lack struct{ verdict, why string }

// never is a test that fails each time.
func never(why string) lack { return lack{"no", why} }

// unsure is a test that fails at times, or would if the machine were busy.
func unsure(why string) lack { return lack{"not promised", why} }

// Why a test of the contract does not hold.
const (
	alwaysPrevious   = "every event has its previous value, requested or not, and filters of events have no effect"
	anyLease         = "a lease that was never granted is accepted"
	compactsAnything = "a compaction to a future or to a compacted revision is no error, but a read at the compacted revision is one"
	dropsUnread      = "a compaction may drop events that a watch has not received yet"
	earlyProgress    = "a progress notification may be older than the request for it"
	lateEvents       = "an event may come after the progress notification of its revision"
	olderAnswers     = "an answer may be older than an earlier answer, or than its own revision"
)

// tooMuch are the tests that take long, or have many clients at once. They only
// run with -all, also where nobody saw them fail.
func tooMuch() map[string]lack {
	much := lack{"not run", ""}
	return map[string]lack{
		"lifecycle/starts and stops leave nothing":       much,
		"reads/of an empty list can be followed":         much,
		"revisions/are used once by 16 writers":          much,
		"revisions/never go back for a client":           much,
		"revisions/show what was acknowledged":           much,
		"scale/50000 objects under a prefix":             much,
		"scale/a day of compactions bounds the size":     much,
		"scale/a watcher that stops reading":             much,
		"watches/begin 5000 events back":                 much,
		"watches/miss nothing after a list":              much,
		"watches/replay what came after, in order":       much,
		"watches/survive compactions":                    much,
		"watches/tell nothing that a read does not show": much,
		"writes/of 32 writers are all kept":              much,
		"writes/of many deletes only one happens":        much,
	}
}

// lacks are the tests that an engine is known to fail, and those that are too
// much for all.
func lacks(known map[string]lack) map[string]lack {
	all := tooMuch()
	maps.Copy(all, known)
	return all
}

// TestPageHasTheTable compares the table of the page with the lists.
func TestPageHasTheTable(t *testing.T) {
	t.Parallel()
	const path = "../../docs/storage/kine.md"
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	columns := slices.Sorted(maps.Keys(engines()))
	want := []string{
		"| test | " + strings.Join(columns, " | ") + " | where it does not hold |",
		"|---|" + strings.Repeat("---|", len(columns)) + "---|",
	}
	for _, test := range slices.Sorted(slices.Values(contract())) {
		if row := row(test, columns); row != "" {
			want = append(want, row)
		}
	}
	if table := strings.Join(want, "\n") + "\n\n"; !strings.Contains(string(page), table) {
		t.Errorf("%s lacks this table:\n%s", path, table)
	}
}

// row is the line of the page on a test, or empty where it holds everywhere.
func row(test string, columns []string) string {
	cells := []string{"|", test}
	var why []string
	everywhere := true
	for _, name := range columns {
		l, found := engines()[name].lacks[test]
		if !found {
			l.verdict = "holds"
		}
		if l.why != "" && !slices.Contains(why, l.why) {
			why = append(why, l.why)
		}
		everywhere = everywhere && !found
		cells = append(cells, "|", l.verdict)
	}
	if everywhere {
		return ""
	}
	return strings.Join(append(cells, "|", strings.Join(why, "; "), "|"), " ")
}
