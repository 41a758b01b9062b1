package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// measured is what was seen while an attack went on.
type measured struct {
	times
	answers map[string]int
	cpu     time.Duration // of the server
	growth  float64       // MiB, from before it to the peak
}

// add takes in what was seen in a further round.
func (m *measured) add(o measured) {
	m.gets, m.creates = append(m.gets, o.gets...), append(m.creates, o.creates...)
	if o.refused > 0 {
		m.refused, m.why = m.refused+o.refused, o.why
	}
	if m.answers == nil {
		m.answers = map[string]int{}
	}
	for answer, n := range o.answers {
		m.answers[answer] += n
	}
	m.cpu += o.cpu
	m.growth = max(m.growth, o.growth)
}

// result is one attack on one storage.
type result struct {
	attack, storage string
	calm, storm     measured
}

type results []result

// percentile is the time that so many of a hundred took at most.
func (o options) percentile(all []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)*o.percent/100]
}

// slower is how many times as long as in the baseline requests took.
func (r result) slower(o options) (gets, creates float64) {
	ratio := func(storm, calm []time.Duration) float64 {
		return float64(o.percentile(storm)) / float64(o.percentile(calm))
	}
	return ratio(r.storm.gets, r.calm.gets), ratio(r.storm.creates, r.calm.creates)
}

// faults are the goals that a result misses.
func (r result) faults(o options) []string {
	var all []string
	gets, creates := r.slower(o)
	if gets > o.slower {
		all = append(all, "gets")
	}
	if creates > o.slower {
		all = append(all, "creates")
	}
	if r.storm.growth > o.growth {
		all = append(all, "memory")
	}
	if r.storm.refused > 0 {
		all = append(all, fmt.Sprintf("%d of the tenant's requests failed: %v", r.storm.refused, r.storm.why))
	}
	return all
}

// line is a row of the table.
func (r result) line(o options) string {
	gets, creates := r.slower(o)
	verdict := "holds"
	if faults := r.faults(o); len(faults) > 0 {
		verdict = "misses: " + strings.Join(faults, ", ")
	}
	round := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Microseconds())/1000) }
	return fmt.Sprintf("| %s | %s | %s | %s → %s | %.1f | %s → %s | %.1f | %.0f | %.1f → %.1f | %s |", r.attack, r.storage, r.storm.said(),
		round(o.percentile(r.calm.gets)), round(o.percentile(r.storm.gets)), gets,
		round(o.percentile(r.calm.creates)), round(o.percentile(r.storm.creates)), creates,
		r.storm.growth, r.calm.cpu.Seconds(), r.storm.cpu.Seconds(), verdict)
}

// said are the answers that the attackers got, the most frequent first.
func (m measured) said() string {
	names := slices.SortedFunc(maps.Keys(m.answers), func(a, b string) int {
		return cmp.Or(m.answers[b]-m.answers[a], strings.Compare(a, b))
	})
	var all []string
	for _, name := range names {
		all = append(all, fmt.Sprintf("%d × %s", m.answers[name], name))
	}
	return strings.Join(all, ", ")
}

// table is Markdown.
func (all results) table(o options) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d connections, %d × %v for each attack and each baseline; times are those of %d of a hundred at most, in ms, memory in MiB, CPU in seconds of the server.\n\n", o.clients, o.rounds, o.span, o.percent)
	b.WriteString("| attack | storage | answers | gets | times | creates | times | memory | CPU | goal |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range all {
		b.WriteString(r.line(o) + "\n")
	}
	return b.String()
}

// missed is an error when a goal was.
func (all results) missed(o options) error {
	var errs []error
	for _, r := range all {
		if faults := r.faults(o); len(faults) > 0 {
			errs = append(errs, fmt.Errorf("%s on %s misses its goal: %s", r.attack, r.storage, strings.Join(faults, ", ")))
		}
	}
	return errors.Join(errs...)
}
