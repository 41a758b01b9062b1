package monitoring

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// panel is what the tests read of a panel of Grafana.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, LegendFormat, RefID string }
}

// panels are the panels of the dashboard that have queries.
func panels(t *testing.T) []panel {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "monitoring", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(dashboard.Panels, func(p panel) bool { return p.Type == "row" })
}

// quiet are panels that show nothing but zero even where much is wrong.
var quiet = map[string]string{
	"Revisions behind":      "its watches are fast enough",
	"Failed TLS handshakes": "no client failed at it",
	"Work queues":           "its controllers keep up",
	"Work tried again":      "they succeed",
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// TestDashboard runs every query of the dashboard on a server for whose clients much goes
// wrong: only there is something to see in every panel.
func TestDashboard(t *testing.T) {
	t.Parallel()
	readings := troubled(t)
	metrics := known(readings[1])
	h := continued(t, readings, nil)
	variables := strings.NewReplacer("$job", "sailplane", "$instance", ".*", "$__rate_interval", "5m")
	all := panels(t)
	if len(all) < 30 {
		t.Fatalf("the dashboard has %d panels: is it read right?", len(all))
	}
	for _, p := range all {
		t.Run(p.Title, func(t *testing.T) {
			moves := false
			for _, target := range p.Targets {
				expr := variables.Replace(target.Expr)
				if err := unknown(expr, metrics); err != nil {
					t.Errorf("%s: %v", target.Expr, err)
					continue
				}
				result := h.query(t, expr, 5*time.Minute)
				if !slices.ContainsFunc(result, func(s promql.Series) bool { return has(s, func(v float64) bool { return !math.IsNaN(v) }) }) {
					t.Errorf("%s has no value", target.Expr)
					continue
				}
				moves = moves || slices.ContainsFunc(result, func(s promql.Series) bool { return has(s, func(v float64) bool { return v > 0 }) })
				for _, label := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
					if !slices.ContainsFunc(result, func(s promql.Series) bool { return s.Metric.Has(label[1]) }) {
						t.Errorf("%s has no label %s, which is in its legend", target.Expr, label[1])
					}
				}
			}
			if reason, is := quiet[p.Title]; moves == is {
				t.Errorf("it has values above zero: %t, which is not expected (%q)", moves, reason)
			}
		})
	}
}

func has(s promql.Series, is func(float64) bool) bool {
	return slices.ContainsFunc(s.Floats, func(p promql.FPoint) bool { return is(p.F) })
}

// TestPanelsLieBeside: panels have an identity each, and do not cover each other.
func TestPanelsLieBeside(t *testing.T) {
	t.Parallel()
	all := panels(t)
	for i, a := range all {
		for _, b := range all[:i] {
			one, two := a.GridPos, b.GridPos
			if one.X < two.X+two.W && two.X < one.X+one.W && one.Y < two.Y+two.H && two.Y < one.Y+one.H {
				t.Errorf("panels %q and %q cover each other", a.Title, b.Title)
			}
			if a.ID == b.ID {
				t.Errorf("panels %q and %q have the identity %d", a.Title, b.Title, a.ID)
			}
		}
		if a.GridPos.X+a.GridPos.W > 24 {
			t.Errorf("panel %q is wider than the dashboard", a.Title)
		}
	}
}
