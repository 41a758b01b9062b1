package main

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// chart is bars in groups, each group on a scale of its own: the longest bar of
// each is as long as that of every other.
type chart struct {
	phase, file, title string
	unit               string
	groups             []bars
}

type bars struct {
	title string
	bars  []bar
}

type bar struct {
	title, colour string
	value         float64
}

const (
	chartWidth = 760
	chartRight = 70 // for the value of the longest bar
	letter     = 6.5
	barHeight  = 16
	barGap     = 4
	groupGap   = 14
	lineHeight = 20
	margin     = 16
)

// left is where bars begin, so that the longest title fits beside them.
func (c chart) left() int {
	longest := 0
	for _, g := range c.groups {
		for _, b := range g.bars {
			longest = max(longest, len(b.title))
		}
	}
	return margin + int(float64(longest)*letter)
}

// svg draws the chart on white, so that it can be read on whatever page.
func (c chart) svg() string {
	var body strings.Builder
	y, left := margin+lineHeight, c.left()
	text := func(x, y int, style, s string) {
		fmt.Fprintf(&body, `<text x="%d" y="%d" %s>%s</text>`+"\n", x, y, style, html.EscapeString(s))
	}
	text(margin, y-4, `font-size="15" font-weight="bold"`, c.title+", "+c.unit)
	for _, g := range c.groups {
		y += groupGap
		if g.title != "" {
			y += lineHeight
			text(margin, y-6, `font-weight="bold"`, g.title)
		}
		most := 0.
		for _, b := range g.bars {
			most = max(most, b.value)
		}
		for _, b := range g.bars {
			length := 0.
			if most > 0 {
				length = max(0, b.value) / most * float64(chartWidth-left-chartRight)
			}
			text(left-8, y+12, `text-anchor="end"`, b.title)
			fmt.Fprintf(&body, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", left, y, max(1, length), barHeight, b.colour)
			text(left+int(length)+6, y+12, "", digits(b.value))
			y += barHeight + barGap
		}
	}
	y += margin
	size := fmt.Sprintf(`width="%d" height="%d"`, chartWidth, y)
	return `<svg xmlns="http://www.w3.org/2000/svg" ` + size + fmt.Sprintf(` viewBox="0 0 %d %d"`, chartWidth, y) +
		` font-family="sans-serif" font-size="12" fill="#24292f" role="img">` + "\n" +
		"<title>" + html.EscapeString(c.title) + "</title>\n<rect " + size + ` fill="#ffffff"/>` + "\n" + body.String() + "</svg>\n"
}

// colours tell targets apart: Sailplane's are blue, the others grey.
func colours() map[string]string {
	return map[string]string{
		columnOf(storageMemory): "#54aeff", columnOf(storageSQLite): "#218bff", columnOf(storageEtcd): "#0550ae",
		columnKube: "#6e7781", columnKine: "#afb8c1",
	}
}

// plan is which rows a chart has.
type plan struct {
	phase, file, title, unit string
	rows                     []string
	names                    []string // of the groups; empty: those of the rows
}

func (l *lab) plans() []plan {
	var verbs, cpu, latency []string
	for _, verb := range []string{"create", "get", listVerb(), "update", "apply", "delete"} {
		verbs = append(verbs, verb)
		cpu = append(cpu, cpuRow(verb, manyClients))
		latency = append(latency, requestsOf(verb, manyClients)+": p50 ms")
	}
	var watches []string
	for _, n := range l.watchers {
		watches = append(watches, watchRow(n))
	}
	var long []string
	for _, kind := range longKinds() {
		long = append(long, longRow(l.objects, kind.name)+": ms")
	}
	return []plan{
		{phaseStart, "start.svg", "From exec to ready", "ms", []string{rowStart, rowRestart}, nil},
		{phaseIdle, "idle.svg", "Idle memory", "MiB", []string{rowRSS, rowAnonymous}, nil},
		{phaseRequests, "requests-cpu.svg", "Requests of 32 clients: CPU of the server", "s per 1,000", cpu, verbs},
		{phaseRequests, "requests-latency.svg", "Requests of 32 clients: median latency", "ms", latency, verbs},
		{phaseList, "lists.svg", "Long lists", "ms", long, nil},
		{phaseCRDs, "crd-first-object.svg", "From the POST of a CRD to its first object", "ms", []string{rowFirstObject}, []string{""}},
		{phaseCRDs, "crd-memory.svg", "Memory per CRD", "MiB", []string{rowPerCRD}, []string{""}},
		{phaseWatch, "watches.svg", "Watch events: CPU of the server", "s per 100,000", watches, nil},
		{phaseAggregated, "proxied.svg", "Gets at a server behind: CPU of the front", "s per 1,000", []string{proxiedRow()}, []string{""}},
	}
}

// charts are those of which there are figures.
func (l *lab) charts() []chart {
	var all []chart
	for _, p := range l.plans() {
		c := chart{phase: p.phase, file: p.file, title: p.title, unit: p.unit}
		for i, row := range p.rows {
			g := bars{title: row}
			if p.names != nil {
				g.title = p.names[i]
			}
			for _, column := range l.results.columns {
				if value, ok := l.results.median(row, column); ok {
					g.bars = append(g.bars, bar{column, colours()[column], value})
				}
			}
			if len(g.bars) > 0 {
				c.groups = append(c.groups, g)
			}
		}
		all = append(all, c)
	}
	parts := chart{phase: phaseParts, file: "parts.svg", title: "What a part costs a request: CPU of the server", unit: "s per 1,000"}
	for _, verb := range partVerbs() {
		g := bars{title: verb}
		for _, part := range l.parts.columns {
			if value, ok := l.parts.median(verb, part); ok {
				g.bars = append(g.bars, bar{part, "#218bff", value})
			}
		}
		if len(g.bars) > 0 {
			parts.groups = append(parts.groups, g)
		}
	}
	return slices.DeleteFunc(append(all, parts), func(c chart) bool { return len(c.groups) == 0 })
}
