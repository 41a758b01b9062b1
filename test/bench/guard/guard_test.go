//go:build !race

// Package guard counts what requests and planes cost, in units that do not depend
// on the machine, and fails when one of them costs more than is recorded in
// testdata/budgets.json. Who wants to spend more records it:
//
//	go -C test test ./bench/guard -update
package guard

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain silences the servers: what they log would bury a failure.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

var update = flag.Bool("update", false, "record what is counted as the budget")

// slack is by how much a count may be above its budget. What it leaves room for
// is work in the background that falls into one run and not into another.
const slack = 0.10

// budgets are the recorded counts by name.
type budgets map[string]float64

var budgetFile = filepath.Join("testdata", "budgets.json")

func readBudgets() (budgets, error) {
	b := budgets{}
	text, err := os.ReadFile(budgetFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, fmt.Errorf("%s: %w", budgetFile, err)
	}
	return b, nil
}

// compare says what a count is against its budget: an error when it is too much,
// a hint when the budget could be less.
func (b budgets) compare(name string, count float64) (hint string, err error) {
	budget, ok := b[name]
	if !ok {
		return "", fmt.Errorf("%s: %.0f, and no budget: record it with -update", name, count)
	}
	more := count/budget - 1
	text := fmt.Sprintf("%s: %.0f, the budget is %.0f: %+.1f %%", name, count, budget, more*100)
	switch {
	case more > slack:
		return "", fmt.Errorf("%s, more than the %.0f %% that are allowed: find out what costs it, or record it with -update", text, slack*100)
	case more < -slack:
		return text + ": it got better: record it with -update", nil
	}
	return text, nil
}

// check compares counts with their budgets, or records them.
func check(t *testing.T, counts budgets) {
	t.Helper()
	b, err := readBudgets()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		for name, count := range counts {
			b[name] = math.Round(count)
		}
		text, err := json.MarshalIndent(b, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(budgetFile, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for name, count := range counts {
		hint, err := b.compare(name, count)
		if err != nil {
			t.Error(err)
			continue
		}
		t.Log(hint)
	}
}

func TestCompare(t *testing.T) {
	b := budgets{"allocations": 100}
	for name, c := range map[string]struct {
		count  float64
		fails  bool
		reason string
	}{
		"as recorded": {100, false, "nothing changed"},
		"in slack":    {109, false, "work in the background is counted too"},
		"more":        {112, true, "this is what the guard is for"},
		"less":        {50, false, "an improvement is told, and is no failure"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := b.compare("allocations", c.count); (err != nil) != c.fails {
				t.Errorf("%s: error %v, want one: %v", c.reason, err, c.fails)
			}
		})
	}
	if _, err := b.compare("bytes", 1); err == nil {
		t.Error("a count without a budget must fail: it would never be compared")
	}
}
