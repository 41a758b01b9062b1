package hostile

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// TestSeriesDoNotGrow asks as many users, with many names, in many namespaces,
// of resources that do not exist and with methods that do not: no metric keeps
// what a caller can make up.
func TestSeriesDoNotGrow(t *testing.T) {
	w := start(t, authz.RBAC{}, fairness.PriorityAndFairness{}, kube.FlowControl(), fairness.Limits{})
	w.round(t, 10)
	series := w.series(t)
	if len(series) < 100 {
		t.Fatalf("%d series: these are not the metrics of a server", len(series))
	}
	for s := range series {
		if strings.Contains(strings.ToLower(s), "madeup") {
			t.Errorf("a caller made the series %s", s)
		}
	}
}

// round makes requests with names that differ from one to the next.
func (w *world) round(t *testing.T, times int) {
	t.Helper()
	d := w.doors["tls"]
	for n := range times {
		namespace := fmt.Sprintf("madeup-ns-%d", n)
		object := fmt.Sprintf("/api/v1/namespaces/%s/configmaps/madeup-cm-%d", namespace, n)
		for _, r := range []request{
			{method: "POST", path: "/api/v1/namespaces", body: namespaces.object(namespace, "", "")},
			{method: "POST", path: "/api/v1/namespaces/" + namespace + "/configmaps", body: configMaps.object(fmt.Sprintf("madeup-cm-%d", n), "", "")},
			{method: "GET", path: object},
			{method: "PATCH", path: object, contentType: "application/merge-patch+json", body: `{"data":{"a":"b"}}`},
			{method: "GET", path: "/api/v1/namespaces/" + namespace + "/configmaps"},
			{method: "GET", path: fmt.Sprintf("/api/v1/namespaces/%s/madeup-things-%d", namespace, n)},
			{method: "GET", path: fmt.Sprintf("/apis/madeup-group-%d/v1/madeup", n)},
			{method: "GET", path: fmt.Sprintf("/apis/madeup-group-%d/vmadeup%d/namespaces/%s/madeup-things-%d?watch=true", n, n, namespace, n)},
			{method: fmt.Sprintf("MADEUP%d", n), path: object},
			{method: "GET", path: fmt.Sprintf("/madeup-path-%d", n)},
			{method: "GET", path: object + fmt.Sprintf("/madeup-sub-%d", n)},
			{method: "DELETE", path: object},
			{method: "GET", path: object},
		} {
			for _, user := range []string{"", fmt.Sprintf("madeup-user-%d", n)} {
				r.user = user
				if _, err := d.send(context.Background(), r); err != nil {
					t.Fatalf("%s %s: %v", r.method, r.path, err)
				}
			}
		}
	}
}

// value is what differs from one look to the next: the value, and an exemplar.
var value = regexp.MustCompile(` [^ ]+( #.*)?$`)

// series are the metrics of the process, without their values.
func (w *world) series(t *testing.T) map[string]bool {
	t.Helper()
	a, err := w.doors["in-process"].send(context.Background(), request{method: "GET", path: "/metrics"})
	if err != nil || a.code != http.StatusOK {
		t.Fatalf("/metrics: %d, %v", a.code, err)
	}
	all := map[string]bool{}
	for line := range strings.Lines(a.body) {
		if !strings.HasPrefix(line, "#") {
			all[value.ReplaceAllString(strings.TrimSpace(line), "")] = true
		}
	}
	return all
}
