package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMedian(t *testing.T) {
	for name, c := range map[string]struct {
		samples []float64
		want    float64
		known   bool
		reason  string
	}{
		"none":  {nil, 0, false, "what was not measured has no median"},
		"one":   {[]float64{3}, 3, true, "a single round counts as it is"},
		"odd":   {[]float64{9, 1, 2}, 2, true, "one outlier changes nothing"},
		"even":  {[]float64{4, 1, 2, 9}, 3, true, "the middle of the two in the middle"},
		"equal": {[]float64{5, 5, 5, 5, 5}, 5, true, "rounds that agree"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newResults(columnKube)
			r.measure(columnKube)
			for _, s := range c.samples {
				r.add(phaseStart, rowStart, s)
			}
			if got, known := r.median(rowStart, columnKube); got != c.want || known != c.known {
				t.Errorf("%s: median of %v is %v, %v: want %v, %v", c.reason, c.samples, got, known, c.want, c.known)
			}
		})
	}
}

// example is a lab with figures of two targets and two parts.
func example(t *testing.T) *lab {
	t.Helper()
	opts, err := parse([]string{"-rounds=1", "-docs=" + t.TempDir()}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(opts, t.TempDir(), io.Discard)
	for column, ms := range map[string]float64{columnKube: 2000, columnOf(storageMemory): 100, columnOf(storageEtcd): 300} {
		l.results.measure(column)
		l.results.add(phaseStart, rowStart, ms)
		l.results.add(phaseAggregated, proxiedRow(), ms/1000)
	}
	for part, cpu := range map[string]float64{leastPart: 0.2, "RBAC": 0.3} {
		l.parts.measure(part)
		for _, verb := range partVerbs() {
			l.parts.add(partsName, verb, cpu)
			if part != leastPart {
				l.parts.add(partsName, moreRow(verb), cpu/0.2)
			}
		}
	}
	for column, cpu := range map[string]float64{columnOwnEtcd: 1, columnLentSQLite: 1.2, columnLentEtcd: 1.5} {
		l.lent.measure(column)
		l.lent.add(phaseLending, lentCreateRow(), cpu)
	}
	l.lent.measure(columnLentSQLite)
	l.lent.add(phaseTenants, tenantRow(1000, rowTenantHeap), 20)
	return l
}

func TestPublish(t *testing.T) {
	l := example(t)
	if err := l.publish(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(l.docs, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"the ratio to kube-apiserver":       "100 (0.050×)",
		"an aim that is met":                "0.050×, met",
		"an aim that is missed":             "0.15×, **missed**",
		"what a part costs":                 "+50 %",
		"the ratio of lent storage to etcd": "1.20 (1.20×)",
		"an aim of it that is missed":       "1.50×, **missed**",
		"an aim that compares with nothing": "20.0 KiB, met",
		"flags of a lender":                 "--storage=sqlite:DIR/state.db --config=FILE",
		"the command":                       "go -C test run ./bench -rounds=1",
		"that it is a try":                  "a try, not a result",
		"the chart":                         "](start.svg)",
		"flags of kube-apiserver":           "\nkube-apiserver --etcd-servers=",
		"its flags for servers behind it":   "also: --proxy-client-cert-file=DIR/",
		"flags of Sailplane, for a storage": "--storage=sqlite:DIR/state.db --audit-log-path=none",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %s, %q:\n%s", what, want, page)
		}
	}
	for _, name := range []string{"start.svg", "parts.svg"} {
		text, err := os.ReadFile(filepath.Join(l.docs, name))
		if err != nil {
			t.Fatal(err)
		}
		bars := 0
		for d := xml.NewDecoder(strings.NewReader(string(text))); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "rect" {
				bars++
			}
		}
		if bars < 3 { // one is the background
			t.Errorf("%s has %d bars: want one for each figure\n%s", name, bars-1, text)
		}
	}
	if _, err := os.Stat(filepath.Join(l.docs, "watches.svg")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a chart of nothing was written: %v", err)
	}
}

func TestParse(t *testing.T) {
	for name, c := range map[string]struct {
		args   []string
		want   string // in the error; empty: none
		reason string
	}{
		"defaults":       {nil, "", "the defaults are what make bench runs"},
		"only":           {[]string{"-only=parts,start"}, "", "several measurements are named with commas"},
		"unknown only":   {[]string{"-only=speed"}, `-only "speed"`, "a misspelt measurement must not be none"},
		"unknown target": {[]string{"-targets=kube"}, `-targets "kube"`, "a misspelt target must not be none"},
		"watchers":       {[]string{"-watchers=100,x"}, "want numbers", "watchers are numbers"},
		"nothing to do":  {[]string{"-rounds=0"}, "-rounds", "a median needs a sample"},
		"more arguments": {[]string{"start"}, "unknown arguments", "-only was meant"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.args, io.Discard)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: error %v, want %q", c.reason, err, c.want)
			}
		})
	}
}
