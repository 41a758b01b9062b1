package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// row is one hostile request and what a Kubernetes API server answers.
type row struct {
	request
	// code and status are the expected answer; no status: not an error.
	code   int
	status metav1.StatusReason
	// message is part of the expected message, or of the body where there is no error.
	message string
	// warning is part of an expected warning. Empty: none is expected.
	warning string
	// reason says what the row shows, where the name does not.
	reason string
	// bounded rows are refused by the bounds on bodies, which the server's own clients
	// do not have.
	bounded bool
}

// bounded is a row that the bounds on bodies refuse.
func bounded(r row) row {
	r.bounded = true
	return r
}

// table is every row, by name.
func table() map[string]row {
	all := map[string]row{}
	add := func(prefix string, rows map[string]row) {
		for name, r := range rows {
			if r.method == "" {
				panic("row without a method: " + name)
			}
			all[prefix+"/"+name] = r
		}
	}
	for _, k := range kinds() {
		add(k.plural, bodyRows(k))
		add(k.plural, metadataRows(k))
		add(k.plural, patchRows(k))
		add(k.plural, queryRows(k))
		add(k.plural, pathRows(k))
	}
	add("configmaps", configMapRows())
	add("secrets", secretRows())
	add("namespaces", namespaceRows())
	add("melons", melonRows())
	add("server", serverRows())
	add("gourds", gourdRows())
	add("customresourcedefinitions", definitionRows())
	return all
}

// TestHostileRequests sends every row in both ways a server can be reached.
// After all of them the server serves and has lost nothing.
func TestHostileRequests(t *testing.T) {
	w := start(t)
	before := w.snapshot(t)
	rows := table()
	t.Run("rows", func(t *testing.T) {
		for name, r := range rows {
			for by, d := range w.doors {
				t.Run(name+"/"+by, func(t *testing.T) {
					t.Parallel()
					r.check(t, w, d)
				})
			}
		}
	})
	logs.noPanic(t)
	t.Logf("%d rows, each sent in %d ways", len(rows), len(w.doors))
	if diff := cmp.Diff(before, w.snapshot(t)); diff != "" {
		t.Errorf("hostile requests changed objects: -before +after\n%s", diff)
	}
	for _, k := range kinds() {
		if k.plural == definitions.plural || k.plural == namespaces.plural {
			continue // nothing here removes a namespace
		}
		a, err := w.doors["tls"].send(t.Context(), request{method: "POST", path: k.collection, body: k.object("after", "", "")})
		if err != nil || a.code != http.StatusCreated {
			t.Errorf("create in %s afterwards: %d %s %v", k.collection, a.code, a.body, err)
		}
	}
}

// noStatus is expected of errors that are no Status in JSON.
const noStatus metav1.StatusReason = "no Status"

func (r row) check(t *testing.T, w *world, d door) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req := r.request
	req.body, req.path = w.fill(t, req.body), w.fill(t, req.path)
	a, err := d.send(ctx, req)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	if r.bounded && d == w.doors["tls"] {
		r.code, r.status, r.message = http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, "the limit is"
	}
	if a.code != r.code {
		t.Errorf("%s %s: code %d, want %d %s: %s\n%s", r.method, short(r.path), a.code, r.code, r.status, r.reason, short(a.body))
		return
	}
	if r.status == noStatus {
		return
	}
	if r.status == "" && a.code < 400 {
		if !strings.Contains(a.body, r.message) {
			t.Errorf("%s %s: want %q in %s", r.method, r.path, r.message, short(a.body))
		}
		r.checkWarnings(t, a)
		return
	}
	s, err := statusOf(a)
	if err != nil {
		t.Fatalf("%s %s: %v: %s", r.method, short(r.path), err, short(a.body))
	}
	if s.Reason != r.status || int(s.Code) != r.code || s.Status != metav1.StatusFailure {
		t.Errorf("%s %s: reason %q code %d, want %q %d: %s\n%s", r.method, short(r.path), s.Reason, s.Code, r.status, r.code, r.reason, short(a.body))
	}
	if !strings.Contains(s.Message, r.message) {
		t.Errorf("%s %s: message %q, want %q in it", r.method, short(r.path), short(s.Message), r.message)
	}
}

func (r row) checkWarnings(t *testing.T, a answer) {
	t.Helper()
	switch all := strings.Join(a.warnings, "\n"); {
	case r.warning == "" && all != "":
		t.Errorf("%s %s: unexpected warning: %s", r.method, r.path, all)
	case !strings.Contains(all, r.warning):
		t.Errorf("%s %s: warnings %q, want %q in them", r.method, r.path, all, r.warning)
	}
}

// statusOf reads the Status that every error of an API path must be.
func statusOf(a answer) (metav1.Status, error) {
	s := metav1.Status{}
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		return s, fmt.Errorf("the error is no JSON: %w", err)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" {
		return s, fmt.Errorf("the error is a %s %s, not a Status", s.APIVersion, s.Kind)
	}
	return s, nil
}

func short(s string) string {
	if len(s) > 600 {
		return s[:600] + "..."
	}
	return s
}
