package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// aims are what the README promises, by row.
func aims() map[string]string {
	return map[string]string{
		rowStart:                        "250; etcd 400",
		rowRSS:                          "90 with etcd",
		cpuRow("create", manyClients):   "0.6 with etcd",
		rowFirstObject:                  "100",
		namespaceRow() + "s":            "5",
		namespaceRow() + "CPU s":        "3",
		feedRow() + "heap B per object": "300",
	}
}

// table has a column per target and rows in the order they were measured.
type table struct {
	columns []string
	rows    []string
	cells   map[string]map[string]string // row, column
	notes   []string
}

func newTable() *table { return &table{cells: map[string]map[string]string{}} }

func (t *table) column(name string) { t.columns = append(t.columns, name) }

func (t *table) note(text string) { t.notes = append(t.notes, text) }

// set fills a cell of the target that is measured.
func (t *table) set(row, value string) {
	if t.cells[row] == nil {
		t.cells[row] = map[string]string{}
		t.rows = append(t.rows, row)
	}
	t.cells[row][t.columns[len(t.columns)-1]] = value
}

// machine notes what the numbers were measured on.
func (t *table) machine(root string, linked bool) {
	pgo := "without a profile"
	if linked {
		pgo = "for profiles, which cost CPU time"
	} else if _, err := os.Stat(filepath.Join(root, "cmd", "sailplane", "default.pgo")); err == nil {
		pgo = "with default.pgo"
	}
	load := ""
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if first, _, ok := strings.Cut(string(b), " "); ok {
			load = ", load average before " + first
		}
	}
	t.note(fmt.Sprintf("%s, %s/%s, %d cores%s; built %s.", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load, pgo))
}

// write prints the table as aligned Markdown.
func (t *table) write(w io.Writer) error {
	lines := [][]string{slices.Concat([]string{"measurement"}, t.columns, []string{"aim"})}
	for _, row := range t.rows {
		line := []string{row}
		for _, c := range t.columns {
			line = append(line, cmp.Or(t.cells[row][c], "-"))
		}
		lines = append(lines, append(line, aims()[row]))
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	var b strings.Builder
	for i, line := range lines {
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
	for _, note := range t.notes {
		b.WriteString("\n" + note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quantile of values, which it sorts. There is at least one.
func quantile(values []time.Duration, q float64) time.Duration {
	slices.Sort(values)
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// spread is the median and the extremes in milliseconds.
func spread(values []time.Duration) string {
	return fmt.Sprintf("%s (%s to %s)", ms(quantile(values, 0.5)), ms(quantile(values, 0)), ms(quantile(values, 1)))
}

// tail is the median and the 99th percentile in milliseconds.
func tail(values []time.Duration) string {
	return ms(quantile(values, 0.5)) + " / " + ms(quantile(values, 0.99))
}

// ms prints milliseconds with three digits or so.
func ms(d time.Duration) string { return digits(float64(d) / float64(time.Millisecond)) }

// mib prints bytes as MiB.
func mib(bytes float64) string { return digits(bytes / (1 << 20)) }

func digits(f float64) string {
	switch {
	case f < 1:
		return fmt.Sprintf("%.3f", f)
	case f < 10:
		return fmt.Sprintf("%.2f", f)
	case f < 100:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}
