package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// known are the tests that fail with our binaries, and why: none but those that
// fail without the network.
func known() map[string]string {
	const download = "downloads binaries of another version of Kubernetes and starts these"
	return map[string]string{
		"TestApiMachinery/aggregatedDiscovery=false":           download,
		"TestLazyRestMapperProvider/aggregatedDiscovery=false": download,
	}
}

// maybe are the tests that fail or pass with the network, whatever the binaries.
func maybe(why string) bool { return strings.HasPrefix(why, "downloads") }

// report writes the tables, and returns what should not be so.
func report(w io.Writer, all []result, assets []binaries) error {
	fmt.Fprint(w, "| package |")
	for _, b := range assets {
		fmt.Fprintf(w, " passed, %s | failed | s |", b.name)
	}
	fmt.Fprint(w, "\n|---|")
	for range assets {
		fmt.Fprint(w, "---:|---:|---:|")
	}
	sums := make([]outcome, len(assets))
	for _, r := range all {
		fmt.Fprintf(w, "\n| %s |", r.name)
		for i, o := range r.runs {
			row(w, o)
			sums[i].passed += o.passed
			sums[i].failed = append(sums[i].failed, o.failed...)
			sums[i].took += o.took
		}
	}
	fmt.Fprint(w, "\n| all |")
	for _, o := range sums {
		row(w, o)
	}
	fmt.Fprint(w, "\n\n")
	for i, b := range assets {
		for _, f := range sums[i].failed {
			why := known()[f.name]
			if why == "" {
				why = f.message
			}
			fmt.Fprintf(w, "- %s: %s: %s\n", b.name, f.name, why)
		}
	}
	return surprises(all, known())
}

func row(w io.Writer, o outcome) {
	fmt.Fprintf(w, " %d | %d | %.1f |", o.passed, len(o.failed), o.took.Round(100*time.Millisecond).Seconds())
}

// surprises are the tests that fail with our binaries and are not known to, and
// those of pkg/client that are known to and pass.
func surprises(all []result, known map[string]string) error {
	var errs []error
	failed, ran := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		ran[r.name] = true
		for _, f := range r.runs[0].failed {
			failed[f.name] = true
			if known[f.name] == "" {
				errs = append(errs, fmt.Errorf("%s: %s failed: %s", r.name, f.name, f.message))
			}
		}
	}
	for name, why := range known {
		if !maybe(why) && ran["pkg/client"] && !failed[name] {
			errs = append(errs, fmt.Errorf("%s passed, and is known to fail: %s: take it out of the list", name, why))
		}
	}
	return errors.Join(errs...)
}
