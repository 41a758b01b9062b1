package monitoring

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"
)

// alerts are the rules by their names.
func alerts(t *testing.T) map[string]rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(filepath.Join("..", "..", "config", "monitoring", "alerts.yaml"), false)
	for _, err := range errs {
		t.Fatal(err)
	}
	all := map[string]rulefmt.Rule{}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if _, twice := all[r.Alert]; twice || r.Alert == "" {
				t.Fatalf("there are two alerts, or none, with the name %q", r.Alert)
			}
			all[r.Alert] = r
		}
	}
	return all
}

// disaster is what the metrics are when an alert has to fire, and when it must not yet.
type disaster struct {
	fires, almost changes
}

func disasters() map[string]disaster {
	const gib = 1 << 30
	now := float64(time.Now().Unix())
	both := func(open, limit float64) changes {
		return changes{"process_open_fds": always(open), "process_max_fds": always(limit)}
	}
	// Of requests that take from one to two, or from two to three seconds.
	slow := func(le string) changes {
		const bucket = `apiserver_request_sli_duration_seconds_bucket{verb="LIST",resource="configmaps",le=%q}`
		return changes{fmt.Sprintf(bucket, le): rising(1000), fmt.Sprintf(bucket, "+Inf"): rising(1000)}
	}
	started := func(every int) changes {
		return changes{"process_start_time_seconds": func(i int) float64 { return now + float64(i/every) }}
	}
	errors := func(rise float64) changes {
		return changes{
			`apiserver_request_total{code="503",verb="LIST",resource="configmaps"}`: rising(rise),
			`apiserver_request_total{code="200",verb="LIST",resource="configmaps"}`: rising(1000),
		}
	}
	history := func(bytes, age float64) changes {
		return changes{
			`sailplane_storage_history_bytes{engine="etcd"}`:                     always(bytes),
			`sailplane_storage_last_compaction_timestamp_seconds{engine="etcd"}`: always(now - age),
		}
	}
	backup := func(age float64) func(int) float64 { return always(now - age) }
	one := func(series string, fires, almost func(int) float64) disaster {
		return disaster{changes{series: fires}, changes{series: almost}}
	}
	return map[string]disaster{
		"SailplaneDown":     one("up", always(0), always(1)),
		"SailplaneRestarts": {started(10), started(40)},
		"SailplaneErrors":   {errors(100), errors(20)},
		"SailplaneSlow":     {slow("3.0"), slow("2.0")},
		"SailplaneRejects": one(`apiserver_flowcontrol_rejected_requests_total{flow_schema="a",priority_level="b",reason="queue-full"}`,
			rising(10), rising(1)),
		"SailplaneStorageRefuses": {
			changes{`sailplane_storage_refused_total{reason="space"}`: rising(1)},
			changes{`sailplane_storage_refused_total{reason="size"}`: rising(1)},
		},
		"SailplaneStorageFills":    one(`sailplane_storage_file_bytes{engine="etcd"}`, always(7*gib), always(6*gib)),
		"SailplaneEtcdStorageFull": one(`sailplane_etcd_storage_limit_used_ratio{etcd_storage="a"}`, always(0.95), always(0.85)),
		"SailplaneHistoryGrows":    {history(gib, 7200), history(gib, 60)},
		"SailplaneBackupOld":       one(`sailplane_storage_last_backup_timestamp_seconds{engine="etcd"}`, backup(37*3600), backup(35*3600)),
		"SailplaneWatchLag":        one(`sailplane_storage_watch_lag_revisions{engine="etcd"}`, always(5000), always(500)),
		"SailplaneClientCertificateExpires": {
			changes{`apiserver_client_certificate_expiration_seconds_bucket{le="172800.0"}`: rising(10)},
			changes{`apiserver_client_certificate_expiration_seconds_bucket{le="2.592e+06"}`: rising(10)},
		},
		"SailplaneWebhookFailsOpen": one(`apiserver_admission_webhook_fail_open_count{name="a",type="validating"}`, rising(1), always(7)),
		"SailplaneWebhookFails": {
			changes{`apiserver_admission_webhook_rejection_count{name="a",type="validating",error_type="calling_webhook_error"}`: rising(1)},
			changes{`apiserver_admission_webhook_rejection_count{name="a",type="validating",error_type="no_error"}`: rising(1)},
		},
		"SailplaneAuthenticationFailures": {
			changes{`authentication_attempts{result="failure"}`: rising(60)},
			changes{`authentication_attempts{result="success"}`: rising(6000)},
		},
		"SailplaneAuditFails":      one(`apiserver_audit_error_total{plugin="log"}`, rising(1), always(7)),
		"SailplaneFileDescriptors": {both(900, 1000), both(700, 1000)},
		"SailplaneQueueGrows": one(`workqueue_depth{name="a"}`, always(500), func(i int) float64 { // empty now and then
			return float64(i%10) * 100
		}),
	}
}

// TestAlerts: alerts are silent where all is well, and each fires when what it is
// about goes wrong.
func TestAlerts(t *testing.T) {
	t.Parallel()
	well, ill := healthy(t), troubled(t)
	metrics := known(well[1], ill[1])
	rules, table := alerts(t), disasters()
	for name := range table {
		if _, is := rules[name]; !is {
			t.Errorf("there is no alert %s", name)
		}
	}
	healthy := continued(t, well, nil)
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			if err := unknown(rule.Expr, metrics); err != nil {
				t.Fatal(err)
			}
			if firing := healthy.query(t, rule.Expr, 30*time.Minute); len(firing) > 0 {
				t.Errorf("where all is well it has values:\n%v", firing)
			}
			d, is := table[name]
			if !is {
				t.Fatal("no test has it fire: give it a row in disasters")
			}
			for what, series := range map[string]changes{"fires": d.fires, "almost": d.almost} {
				for text := range series {
					if err := unknown(text, metrics); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
			}
			if value := fires(t, continued(t, well, d.almost), rule); value != nil {
				t.Errorf("it fires too early: %v", value)
			}
			value := fires(t, continued(t, well, d.fires), rule)
			if value == nil {
				t.Fatalf("it does not fire: it has the values %v", continued(t, well, d.fires).query(t, rule.Expr, time.Duration(rule.For)))
			}
			says(t, rule, value)
		})
	}
	h := continued(t, ill, nil)
	if fires(t, continued(t, newborn(t), nil), rules["SailplaneBackupOld"]) != nil {
		t.Error("SailplaneBackupOld fires where no backup was ever taken")
	}
	for _, name := range []string{
		"SailplaneErrors", "SailplaneRejects", "SailplaneWebhookFailsOpen", "SailplaneWebhookFails", "SailplaneAuditFails",
		"SailplaneBackupOld", "SailplaneEtcdStorageFull",
	} {
		if fires(t, h, rules[name]) == nil {
			t.Errorf("%s does not fire for a server that has this trouble", name)
		}
	}
}

// fires returns a series that was there as long as the rule wants it, or nil.
func fires(t *testing.T, h *history, rule rulefmt.Rule) *promql.Series {
	t.Helper()
	while := time.Duration(rule.For)
	for _, s := range h.query(t, rule.Expr, while) {
		if len(s.Floats) == int(while/step)+1 && !math.IsNaN(s.Floats[0].F) {
			return &s
		}
	}
	return nil
}

// says checks what an alert tells whoever it wakes.
func says(t *testing.T, rule rulefmt.Rule, value *promql.Series) {
	t.Helper()
	if severity := rule.Labels["severity"]; severity != "page" && severity != "ticket" {
		t.Errorf("its severity is %q, want page or ticket", severity)
	}
	if rule.For < model.Duration(time.Minute) {
		t.Errorf("it fires after %v: one reading is not enough", rule.For)
	}
	for _, name := range []string{"summary", "description", "runbook"} {
		// As Prometheus does, but that a label which is not there is an error.
		text := "{{$labels := .Labels}}{{$value := .Value}}" + rule.Annotations[name]
		data := struct {
			Labels map[string]string
			Value  float64
		}{value.Metric.Map(), value.Floats[0].F}
		none := func(context.Context, string, time.Time) (promql.Vector, error) { return nil, nil }
		got, err := template.NewTemplateExpander(t.Context(), text, name, data, model.Now(), none, &url.URL{}, []string{"missingkey=error"}).Expand()
		if err != nil || len(strings.Fields(got)) < 4 {
			t.Errorf("its %s says %q, %v", name, got, err)
		}
	}
}

var (
	rawPath  = regexp.MustCompile(`--raw '?(/[^\s']+)`)
	flagName = regexp.MustCompile(`--[a-z][a-z-]+`)
	title    = regexp.MustCompile(`dashboard's "([^"]+)"`)
	metric   = regexp.MustCompile(`\b(?:apiserver|authentication|etcd|process|sailplane|workqueue)_[a-z_]+`)
)

// TestRunbooks: what alerts tell people to ask, to set and to look at is there.
func TestRunbooks(t *testing.T) {
	t.Parallel()
	s := start(t)
	metrics := known(s.metrics())
	help, err := exec.Command(sailplane, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, help)
	}
	all := panels(t)
	found := map[string]int{}
	for name, rule := range alerts(t) {
		text := rule.Annotations["description"] + " " + rule.Annotations["runbook"]
		for _, m := range rawPath.FindAllStringSubmatch(text, -1) {
			found["paths"]++
			s.do(http.StatusOK, http.MethodGet, m[1], "")
		}
		for _, flag := range flagName.FindAllString(text, -1) {
			found["flags"]++
			if flag != "--raw" && !strings.Contains(string(help), flag+" ") {
				t.Errorf("%s: sailplane serve has no flag %s", name, flag)
			}
		}
		for _, m := range title.FindAllStringSubmatch(text, -1) {
			found["titles"]++
			if !slices.ContainsFunc(all, func(p panel) bool { return p.Title == m[1] }) {
				t.Errorf("%s: the dashboard has no panel %q", name, m[1])
			}
		}
		for _, m := range metric.FindAllString(text, -1) {
			if metrics[m] == nil {
				t.Errorf("%s: there is no metric %s", name, m)
			}
		}
	}
	for _, what := range []string{"paths", "flags", "titles"} {
		if found[what] == 0 {
			t.Errorf("no alert names %s: are they read right?", what)
		}
	}
}
