package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sailplane-dev/sailplane/pkg/insight"
)

// writeServers prints a table of the servers behind a server, and below it why some cannot be
// used, and what several have.
func writeServers(to io.Writer, r *insight.Report) error {
	w := &tables{to: tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)}
	if len(r.Aggregated) == 0 {
		w.line("This server hands requests to no other one.")
		return w.to.Flush()
	}
	w.line("SERVER", "ADDRESS", "GROUPS", "STATE", "SINCE", "LATENCY", "CONFLICTS")
	var below []string
	for _, s := range r.Aggregated {
		name, state := who(s.Plane, s.Name), "available"
		if !s.Available {
			state = "away"
			below = append(below, name+": "+s.Problem)
		}
		for _, c := range s.Conflicts {
			below = append(below, name+": "+c)
		}
		w.line(name, orNone(s.Address), orNone(strings.Join(s.Groups, ",")), state, duration.HumanDuration(time.Since(s.Since)),
			fmt.Sprintf("%.1fms", s.LatencySeconds*1000), orNone(fmt.Sprint(len(s.Conflicts))))
	}
	if len(below) > 0 {
		fmt.Fprintln(w.to)
	}
	for _, line := range below {
		w.line(line)
	}
	return w.to.Flush()
}

// line prints a line of a table that has no title.
func (w *tables) line(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	fmt.Fprintln(w.to, strings.Join(cells, "\t"))
}

func orNone(s string) string {
	if s == "" || s == "0" {
		return "-"
	}
	return s
}
