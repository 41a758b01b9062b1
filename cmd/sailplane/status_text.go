package main

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sailplane-dev/sailplane/pkg/insight"
)

// mostRows is how many rows of planes, resources and caches are shown.
const mostRows = 15

// writeStatus prints a report as sections with a table each.
func writeStatus(to io.Writer, r *insight.Report) error {
	w := &tables{to: tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)}
	w.server(r)
	w.stored(r)
	w.users("USERS SINCE THE START", r.Total)
	w.users("USERS IN THE LAST "+long(r.Recent.Seconds), r.Recent)
	w.section(fmt.Sprintf("SLOW REQUESTS, OF %v OR MORE", time.Duration(r.SlowSeconds*float64(time.Second))))
	w.row("WHEN", "USER", "VERB", "PATH", "CODE", "SECONDS")
	for _, q := range r.Slow {
		w.row(q.When.Local().Format(time.DateTime), who(q.Plane, q.User), q.Verb, q.Path, strconv.Itoa(q.Code), seconds(q.Seconds))
	}
	w.none(len(r.Slow))
	w.section("FLOW CONTROL")
	if r.Levels == nil {
		w.row("without priority levels")
		return w.to.Flush()
	}
	w.row("LEVEL", "EXECUTING", "WAITING", "REJECTED")
	for _, l := range r.Levels {
		w.row(l.Name, number(l.Executing), number(l.Waiting), number(l.Rejected))
	}
	return w.to.Flush()
}

// tables prints one table after the other.
type tables struct {
	to    *tabwriter.Writer
	begun bool
}

// section begins a table.
func (w *tables) section(title string) {
	if w.begun {
		fmt.Fprintln(w.to)
	}
	w.begun = true
	fmt.Fprintln(w.to, printable(title))
}

// row prints a line of a table.
func (w *tables) row(cells ...string) {
	for i := range cells {
		cells[i] = printable(cells[i])
	}
	fmt.Fprintln(w.to, "  "+strings.Join(cells, "\t"))
}

// none says that a table has no rows.
func (w *tables) none(rows int) {
	if rows == 0 {
		w.row("none")
	}
}

// more says how many rows a table has that are not shown.
func (w *tables) more(all int) {
	if all > mostRows {
		w.row(fmt.Sprintf("... %d more", all-mostRows))
	}
	w.none(all)
}

func (w *tables) server(r *insight.Report) {
	s := r.Server
	w.section("SERVER")
	w.row("name", s.Name)
	w.row("version", cmp.Or(s.Version, "unknown")+", Kubernetes "+s.Kubernetes+", "+s.Go)
	w.row("uptime", long(s.UptimeSeconds))
	ready := "yes"
	if !s.Ready {
		ready = "no"
	}
	w.row("ready", ready)
	for _, c := range s.Failed {
		w.row("failed", c.Name+": "+c.Reason)
	}
	w.row("memory", size(int64(min(s.MemoryBytes, 1<<62)))+", "+size(int64(min(s.LiveBytes, 1<<62)))+" of it live at the last collection")
	w.row("goroutines", strconv.Itoa(s.Goroutines))
	w.row("serves", fmt.Sprintf("%d resources in %d groups", r.Served.Resources, r.Served.Groups))
}

func (w *tables) stored(r *insight.Report) {
	w.section("PLANES")
	w.row("NAME", "STATE", "OBJECTS", "SIZE")
	for _, p := range r.Planes[:min(len(r.Planes), mostRows)] {
		state, objects, bytes := "starting", "unknown", "unknown"
		if p.Ready {
			state = "ready"
		}
		if p.Counted {
			objects, bytes = strconv.Itoa(p.Objects), size(p.Bytes)
		}
		w.row(cmp.Or(p.Name, "(root)"), state, objects, bytes)
	}
	w.more(len(r.Planes))
	w.section("RESOURCES")
	w.row("RESOURCE", "OBJECTS", "SIZE")
	for _, x := range r.Resources[:min(len(r.Resources), mostRows)] {
		w.row(x.Resource, strconv.Itoa(x.Objects), size(x.Bytes))
	}
	w.more(len(r.Resources))
	w.storage(r.Storage)
	w.peers(r.Servers)
	w.section("WATCH CACHES")
	w.row("RESOURCE", "CACHES", "OBJECTS")
	for _, c := range r.Caches[:min(len(r.Caches), mostRows)] {
		w.row(c.Resource, strconv.Itoa(c.Caches), strconv.Itoa(c.Objects))
	}
	w.more(len(r.Caches))
}

// known is a number, if there is one.
func known(n *int64, as func(int64) string) string {
	if n == nil {
		return "unknown"
	}
	return as(*n)
}

// peers prints the servers on the storage, if it may have several.
func (w *tables) peers(all []insight.Peer) {
	if len(all) == 0 {
		return
	}
	w.section("SERVERS")
	w.row("ADDRESS", "LAST SEEN", "WATCH LAG", "WORK", "ID")
	for _, p := range all {
		address := cmp.Or(p.Address, "none")
		if p.Self {
			address += " (this one)"
		}
		seen, work := p.Renewed.Local().Format(time.DateTime), cmp.Or(strings.Join(p.Work, ", "), "none")
		w.row(address, seen, known(p.LagRevisions, number), work, p.ID)
	}
}

// ago is how long it is since a time; what is said if there is none.
func ago(at time.Time, none string) string {
	if at.IsZero() {
		return none
	}
	return long(time.Since(at).Seconds()) + " ago"
}

func (w *tables) storage(s insight.Storage) {
	w.section("STORAGE")
	w.row("kind", s.Engine)
	w.row("size", known(s.FileBytes, size))
	w.row("history", known(s.HistoryBytes, size))
	w.row("compacted or opened", ago(s.Compacted, "unknown"))
	w.row("last backup", ago(s.Backup, "none that is known"))
	revision := "unknown: the storage does not answer"
	if s.Revision > 0 {
		revision = number(s.Revision)
	}
	w.row("revision", revision)
	w.row("watch lag", known(s.LagRevisions, func(n int64) string { return number(n) + " revisions" }))
}

func (w *tables) users(title string, u insight.Users) {
	w.section(title)
	w.row("USER", "REQUESTS", "SECONDS", "ERRORS", "WATCHES")
	for _, x := range u.Users {
		w.row(who(x.Plane, x.User), number(x.Requests), seconds(x.Seconds), number(x.Errors), strconv.Itoa(x.Watches))
	}
	if o := u.Others; o.Requests > 0 || o.Watches > 0 {
		w.row("(others)", number(o.Requests), seconds(o.Seconds), number(o.Errors), strconv.Itoa(o.Watches))
	}
	w.none(len(u.Users))
}

// who is a user as tables have it, with the plane if that is not the root plane.
func who(plane, user string) string {
	if plane == "" {
		return user
	}
	return user + " (plane " + plane + ")"
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 2, 64) }

// long is a duration as kubectl shows ages: 3m2s.
func long(s float64) string { return duration.HumanDuration(time.Duration(s * float64(time.Second))) }

// size is a number of bytes: 12.3 MiB.
func size(bytes int64) string {
	if bytes < 1<<10 {
		return number(bytes) + " B"
	}
	n, unit := float64(bytes), ""
	for _, unit = range []string{"KiB", "MiB", "GiB", "TiB"} {
		if n /= 1 << 10; n < 1<<10 {
			break
		}
	}
	return strconv.FormatFloat(n, 'f', 1, 64) + " " + unit
}

// printable returns a text without what would move a terminal's cursor, or the columns
// of a table: callers choose their names and paths.
func printable(text string) string {
	if strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}
