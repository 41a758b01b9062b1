package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// results are the samples of all rounds: what was measured, of what. Of the
// samples of a cell, the median counts.
type results struct {
	columns []string
	rows    []row // in the order they were first measured
	samples map[cell][]float64
	current string // the column that is measured
	base    string // the column that others are compared with
}

// row is one figure that is measured.
type row struct{ phase, name string }

type cell struct{ row, column string }

func newResults(base string) *results { return &results{samples: map[cell][]float64{}, base: base} }

// measure says whose figures the following ones are.
func (r *results) measure(column string) {
	r.current = column
	if !slices.Contains(r.columns, column) {
		r.columns = append(r.columns, column)
	}
}

// add adds a sample of the target that is measured.
func (r *results) add(phase, name string, value float64) {
	if !slices.ContainsFunc(r.rows, func(known row) bool { return known.name == name }) {
		r.rows = append(r.rows, row{phase, name})
	}
	key := cell{name, r.current}
	r.samples[key] = append(r.samples[key], value)
}

// median is that of a cell, if there is any sample.
func (r *results) median(row, column string) (float64, bool) {
	values := r.samples[cell{row, column}]
	if len(values) == 0 {
		return 0, false
	}
	values = slices.Sorted(slices.Values(values))
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2, true
	}
	return values[middle], true
}

// extremes are those of a cell that has samples.
func (r *results) extremes(row, column string) (least, most float64) {
	values := r.samples[cell{row, column}]
	return slices.Min(values), slices.Max(values)
}

// ratio is the median of a column divided by that of the base.
func (r *results) ratio(row, column string) (float64, bool) {
	value, ok := r.median(row, column)
	of, known := r.median(row, r.base)
	if !ok || !known || of <= 0 || column == r.base {
		return 0, false
	}
	return value / of, true
}

// fewest is how many samples the cell of these and other results has that has
// fewest: what was measured several times a round has more.
func (r *results) fewest(others ...*results) int {
	n := 0
	for _, each := range append(others, r) {
		for _, values := range each.samples {
			if n == 0 || len(values) < n {
				n = len(values)
			}
		}
	}
	return n
}

// phases are those of the rows, in order.
func (r *results) phases() []string {
	var all []string
	for _, row := range r.rows {
		if !slices.Contains(all, row.phase) {
			all = append(all, row.phase)
		}
	}
	return all
}

// of returns the names of a phase's rows.
func (r *results) of(phase string) []string {
	var names []string
	for _, row := range r.rows {
		if row.phase == phase {
			names = append(names, row.name)
		}
	}
	return names
}

// latencies adds the median and the 99th percentile.
func (r *results) latencies(phase, what string, took []time.Duration) {
	r.add(phase, what+": p50 ms", milliseconds(quantile(took, 0.5)))
	r.add(phase, what+": p99 ms", milliseconds(quantile(took, 0.99)))
}

// quantile of values, which it sorts. There is at least one.
func quantile[T cmp.Ordered](values []T, q float64) T {
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// mib is bytes as MiB.
func mib(bytes float64) float64 { return bytes / (1 << 20) }

// digits prints a number with three digits or so.
func digits(f float64) string {
	switch size := max(f, -f); {
	case size < 1:
		return fmt.Sprintf("%.3f", f)
	case size < 10:
		return fmt.Sprintf("%.2f", f)
	case size < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}
