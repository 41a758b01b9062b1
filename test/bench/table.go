package main

import (
	"fmt"
	"slices"
	"strings"
)

// grid is a table of Markdown, its head first.
type grid [][]string

// String is the table with aligned columns, so that it can be read as it is.
func (g grid) String() string {
	widths := make([]int, len(g[0]))
	for _, line := range g {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for i, line := range g {
		for j, cell := range line {
			b.WriteString("| " + cell + strings.Repeat(" ", widths[j]-len([]rune(cell))+1))
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, width := range widths {
				b.WriteString("|" + strings.Repeat("-", width+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}

// table has the rows of a phase and the columns that have any figure of it,
// filled by a function.
func (r *results) table(phase string, fill func(row, column string) string) grid {
	rows := r.of(phase)
	columns := slices.DeleteFunc(slices.Clone(r.columns), func(column string) bool {
		return !slices.ContainsFunc(rows, func(row string) bool { return len(r.samples[cell{row, column}]) > 0 })
	})
	lines := grid{append([]string{"measurement"}, columns...)}
	for _, name := range rows {
		line := []string{name}
		for _, column := range columns {
			line = append(line, fill(name, column))
		}
		lines = append(lines, line)
	}
	return lines
}

const none = "-"

// compared is the median of a cell, with its ratio to that of the base.
func (r *results) compared(row, column string) string {
	value, ok := r.median(row, column)
	if !ok {
		return none
	}
	if ratio, ok := r.ratio(row, column); ok {
		return digits(value) + " (" + times(ratio) + ")"
	}
	return digits(value)
}

// spread is the least and the most of a cell.
func (r *results) spread(row, column string) string {
	if _, ok := r.median(row, column); !ok {
		return none
	}
	least, most := r.extremes(row, column)
	return digits(least) + " to " + digits(most)
}

func times(ratio float64) string {
	if ratio < 0.1 {
		return fmt.Sprintf("%.3f×", ratio)
	}
	return fmt.Sprintf("%.2f×", ratio)
}

// partsTable has a line per part: what its requests cost, and how much more that
// was than what its base cost at the same time.
func (r *results) partsTable() grid {
	head := []string{"server in memory with"}
	for _, verb := range partVerbs() {
		head = append(head, verb+": CPU s per 1,000", "more", "least to most")
	}
	lines := grid{head}
	for _, part := range r.columns {
		line := []string{part}
		for _, verb := range partVerbs() {
			value, ok := r.median(verb, part)
			if !ok {
				line = append(line, none, none, none)
				continue
			}
			more := none
			if ratio, ok := r.median(moreRow(verb), part); ok {
				more = fmt.Sprintf("%+.0f %%", (ratio-1)*100)
			}
			line = append(line, digits(value), more, r.spread(verb, part))
		}
		lines = append(lines, line)
	}
	return lines
}

// aim is the most that a figure may be: of that of the base, or as it is if it has a unit.
type aim struct {
	row  string
	most float64
	unit string
}

func (l *lab) aims() []aim {
	all := []aim{{rowStart, 1. / 10, ""}, {rowRSS, 1. / 4, ""}}
	for _, verb := range []string{"create", "update", "apply", "delete"} {
		all = append(all, aim{cpuRow(verb, manyClients), 1. / 2, ""})
	}
	all = append(all, aim{cpuRow("get", manyClients), 2. / 3, ""}, aim{cpuRow(listVerb(), manyClients), 2. / 3, ""},
		aim{proxiedRow(), 0.7, ""})
	for _, n := range l.watchers {
		all = append(all, aim{watchRow(n), 2. / 3, ""})
	}
	return append(all, aim{rowFirstObject, 1. / 30, ""}, aim{rowPerCRD, 1. / 4, ""})
}

// aimsTable says of each aim that was measured whether it is met. It is headed by what the base is.
func (r *results) aimsTable(base string, all []aim, columns []string) grid {
	lines := grid{append([]string{base, "at most"}, columns...)}
	for _, a := range all {
		line, measured := []string{a.row, a.says(a.most)}, false
		for _, column := range columns {
			value, ok := r.ratio(a.row, column)
			if a.unit != "" {
				value, ok = r.median(a.row, column)
			}
			measured = measured || ok
			switch {
			case !ok:
				line = append(line, none)
			case value <= a.most:
				line = append(line, a.says(value)+", met")
			default:
				line = append(line, a.says(value)+", **missed**")
			}
		}
		if measured {
			lines = append(lines, line)
		}
	}
	return lines
}

// says prints a figure as the aim has it.
func (a aim) says(value float64) string {
	if a.unit == "" {
		return times(value)
	}
	return digits(value) + " " + a.unit
}

// peersTable says what is met of the aims that compare with kube-apiserver.
func (l *lab) peersTable() grid {
	columns := slices.DeleteFunc(slices.Clone(l.results.columns), func(c string) bool { return c == columnKube || c == columnKine })
	return l.results.aimsTable("of kube-apiserver's with etcd", l.aims(), columns)
}

// lentTable says what is met of the aims that compare with an etcd.
func (l *lab) lentTable() grid {
	columns := slices.DeleteFunc(slices.Clone(l.lent.columns), func(c string) bool { return c == columnOwnEtcd || c == columnPlainEtcd })
	return l.lent.aimsTable("of an etcd's", lendingAims(slices.Max(l.tenants)), columns)
}
