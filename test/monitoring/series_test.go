package monitoring

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// reading is what a server answered at /metrics: the value of each series.
type reading struct {
	values   map[string]float64 // by the text of the labels
	labels   map[string]labels.Labels
	counters map[string]bool // names of metrics
}

// targeted are labels with those that Prometheus gives to what it reads, and
// without empty ones, which are none.
func targeted(l labels.Labels) labels.Labels {
	return labels.NewBuilder(l).Set("job", "sailplane").Set("instance", "one:6443").Labels()
}

// metrics reads the metrics of a server, as Prometheus does.
func (s *server) metrics() reading {
	s.t.Helper()
	text := s.do(http.StatusOK, http.MethodGet, "/metrics", "")
	r := reading{values: map[string]float64{}, labels: map[string]labels.Labels{}, counters: map[string]bool{}}
	for p, kind := textparse.NewPromParser(text, labels.NewSymbolTable()), ""; ; {
		switch entry, err := p.Next(); {
		case errors.Is(err, io.EOF):
			r.add(1, labels.FromStrings(labels.MetricName, "up")) // which Prometheus adds
			return r
		case err != nil:
			s.t.Fatalf("/metrics: %v", err)
		case entry == textparse.EntryType:
			_, of := p.Type()
			kind = string(of)
		case entry == textparse.EntrySeries:
			_, _, value := p.Series()
			var l labels.Labels
			p.Labels(&l)
			r.add(value, l)
			if kind == "counter" || kind == "histogram" {
				r.counters[l.Get(labels.MetricName)] = true
			}
		}
	}
}

func (r reading) add(value float64, l labels.Labels) {
	l = targeted(l)
	r.values[l.String()], r.labels[l.String()] = value, l
}

const (
	step  = 30 * time.Second
	steps = 150
)

// history is what Prometheus has of a server after an hour. Its end is now, because
// some metrics are times.
type history struct {
	now    time.Time
	series map[string]storage.Series // by the text of the labels
}

// changes are series by their text, as in PromQL, and the values of their steps.
type changes map[string]func(i int) float64

// always is a series that does not change, and rising one that rises in each step.
func always(v float64) func(int) float64 { return func(int) float64 { return v } }
func rising(v float64) func(int) float64 { return func(i int) float64 { return float64(i) * v } }

// continued is a history made of two readings: counters go on as between the two.
// Changes replace series, or add some.
func continued(t *testing.T, readings [2]reading, change changes) *history {
	t.Helper()
	before, after := readings[0], readings[1]
	h := &history{now: time.Now(), series: map[string]storage.Series{}}
	for key, l := range after.labels {
		last, rise := after.values[key], 0.0
		if after.counters[l.Get(labels.MetricName)] {
			rise = last - before.values[key]
		}
		h.series[key] = h.line(l, func(i int) float64 { return last + float64(i)*rise })
	}
	for text, value := range change {
		l, err := parser.ParseMetric(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		l = targeted(l)
		h.series[l.String()] = h.line(l, value)
	}
	return h
}

func (h *history) line(l labels.Labels, value func(i int) float64) storage.Series {
	s := promql.Series{Metric: l, Floats: make([]promql.FPoint, steps)}
	for i := range s.Floats {
		s.Floats[i] = promql.FPoint{T: h.now.Add(time.Duration(i+1-steps) * step).UnixMilli(), F: value(i)}
	}
	return promql.NewStorageSeries(s)
}

// Querier implements storage.Queryable.
func (h *history) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: h.selected}, nil
}

func (h *history) selected(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &seriesSet{}
	for _, key := range slices.Sorted(maps.Keys(h.series)) {
		l := h.series[key].Labels()
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) }) {
			found.rest = append(found.rest, h.series[key])
		}
	}
	return found
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	at   storage.Series
	rest []storage.Series
}

func (s *seriesSet) Next() bool {
	if len(s.rest) == 0 {
		return false
	}
	s.at, s.rest = s.rest[0], s.rest[1:]
	return true
}

func (s *seriesSet) At() storage.Series                { return s.at }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }

// query evaluates an expression at each step of the last while.
func (h *history) query(t *testing.T, expr string, while time.Duration) promql.Matrix {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: patience})
	defer engine.Close()
	q, err := engine.NewRangeQuery(t.Context(), h, nil, expr, h.now.Add(-while), h.now, step)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	result := q.Exec(t.Context())
	matrix, err := result.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(matrix) // which the query takes back
}

// known is what servers have: the labels of each metric.
func known(readings ...reading) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, r := range readings {
		for _, l := range r.labels {
			name := l.Get(labels.MetricName)
			if all[name] == nil {
				all[name] = map[string]bool{}
			}
			l.Range(func(one labels.Label) { all[name][one.Name] = true })
		}
	}
	return all
}

// unknown says which metrics and labels of an expression no server has.
func unknown(expr string, metrics map[string]map[string]bool) error {
	parsed, err := parser.ParseExpr(expr)
	if err != nil {
		return err
	}
	var errs []error
	has := func(node parser.Node, label string) {
		parser.Inspect(node, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok && metrics[s.Name] != nil && !metrics[s.Name][label] {
				errs = append(errs, fmt.Errorf("%s has no label %s", s.Name, label))
			}
			return nil
		})
	}
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			if metrics[n.Name] == nil {
				errs = append(errs, fmt.Errorf("there is no metric %s", n.Name))
			}
			for _, m := range n.LabelMatchers {
				has(n, m.Name)
			}
		case *parser.AggregateExpr:
			for _, label := range n.Grouping {
				has(n.Expr, label)
			}
		}
		return nil
	})
	return errors.Join(errs...)
}
