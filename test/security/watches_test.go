package security

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWatches: what allowed a watch is asked for again while it runs.
func TestWatches(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), watchAttempts())
}

const watched = tenant + "/configmaps?watch=1&timeoutSeconds=600"

// stream opens a watch that stays open until the test ends.
func (w *world) stream(t *testing.T, r request) io.Reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+r.path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	client := w.plain
	if r.as == admin {
		client = w.certified
	} else if req.Header.Get("Authorization") == "" {
		req.Header.Set("Authorization", "Bearer "+tokenOf(r.as))
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK {
		content, _ := readAll(resp)
		t.Fatalf("watch as %s: %d %s", r.as, resp.StatusCode, content)
	}
	return resp.Body
}

// ends reads a watch to its end, and returns the code of the error that is its last event.
func ends(t *testing.T, stream io.Reader) int32 {
	t.Helper()
	var last struct {
		Type   string
		Object metav1.Status
	}
	for r := json.NewDecoder(bufio.NewReader(stream)); ; {
		err := r.Decode(&last)
		if err == io.EOF { // the decoder does not wrap it
			break
		}
		if err != nil {
			t.Errorf("the watch did not end: %v", err)
			return 0
		}
	}
	if last.Type != "ERROR" || last.Object.Kind != "Status" {
		t.Errorf("the last event is %+v", last)
	}
	return last.Object.Code
}

// bindWatcher lets a user watch the ConfigMaps of namespace tenant.
func (w *world) bindWatcher(t *testing.T, name, subject, token string) {
	t.Helper()
	w.must(t, request{method: "POST", path: rbacv1 + "/namespaces/tenant/rolebindings", body: `{"metadata":{"name":"` + name + `"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"watcher"},"subjects":[` + subject + `]}`}, http.StatusCreated)
	w.await(t, request{method: "GET", path: tenant + "/configmaps?limit=1&fieldSelector=metadata.name%3Dopen", as: "", header: map[string]string{"Authorization": "Bearer " + token}}, http.StatusOK)
}

func subjectOf(user string) string {
	return `{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + user + `"}`
}

func watchAttempts() map[string]attempt {
	return map[string]attempt{
		"watch behind a binding that is gone": {reason: "a watch is allowed as long as its user is", try: func(t *testing.T, w *world) {
			for form, accept := range map[string]string{
				"JSON": "application/json", "protobuf": "application/vnd.kubernetes.protobuf",
				"table": "application/json;as=Table;v=v1;g=meta.k8s.io",
			} {
				w.bindWatcher(t, "brief", subjectOf("stranger"), tokenOf("stranger"))
				path := watched + "&fieldSelector=metadata.name%3Dopen"
				stream := w.stream(t, request{as: "stranger", path: path, header: map[string]string{"Accept": accept}})
				kept := w.stream(t, request{as: "watcher", path: path})
				gone := time.Now()
				w.must(t, request{method: "DELETE", path: rbacv1 + "/namespaces/tenant/rolebindings/brief"}, http.StatusOK)
				if form == "protobuf" {
					content, err := io.ReadAll(stream)
					if err != nil || !strings.Contains(string(content), "ERROR") || !strings.Contains(string(content), "Forbidden") {
						t.Errorf("%s: %q, %v", form, content, err)
					}
				} else if code := ends(t, stream); code != http.StatusForbidden {
					t.Errorf("%s: the watch ends with %d", form, code)
				}
				t.Logf("%s: the watch ended %v after its binding", form, time.Since(gone))
				w.must(t, request{method: "PATCH", path: open, contentType: "application/merge-patch+json", body: `{"metadata":{"labels":{"seen":"` + strings.ToLower(form) + `"}}}`}, http.StatusOK)
				for lines := bufio.NewScanner(kept); ; {
					if !lines.Scan() {
						t.Fatalf("another watch ended, too: %v", lines.Err())
					}
					if strings.Contains(lines.Text(), strings.ToLower(form)) {
						break
					}
				}
			}
		}},
		"watch for somebody else": {reason: "who may no longer impersonate has no watches of the other user", try: func(t *testing.T, w *world) {
			w.must(t, request{method: "POST", path: rbacv1 + "/clusterroles", body: `{"metadata":{"name":"mask"},"rules":[{"apiGroups":[""],"resources":["users"],"verbs":["impersonate"],"resourceNames":["watcher"]}]}`}, http.StatusCreated)
			w.must(t, request{method: "POST", path: rbacv1 + "/clusterrolebindings", body: `{"metadata":{"name":"mask"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"mask"},"subjects":[` + subjectOf("stranger") + `]}`}, http.StatusCreated)
			as := map[string]string{"Impersonate-User": "watcher"}
			w.await(t, request{as: "stranger", method: "GET", path: tenant + "/configmaps?fieldSelector=metadata.name%3Dopen", header: as}, http.StatusOK)
			stream := w.stream(t, request{as: "stranger", path: watched + "&fieldSelector=metadata.name%3Dopen", header: as})
			w.must(t, request{method: "DELETE", path: rbacv1 + "/clusterrolebindings/mask"}, http.StatusOK)
			if code := ends(t, stream); code != http.StatusForbidden {
				t.Errorf("the watch ends with %d", code)
			}
		}},
		"one who outruns watches": {reason: "who writes much ends no watches of others", try: func(t *testing.T, w *world) {
			const updates = 200
			w.must(t, request{method: "POST", path: tenant + "/configmaps", body: `{"metadata":{"name":"busy"}}`}, http.StatusCreated)
			stream := w.stream(t, request{as: "watcher", path: watched + "&fieldSelector=metadata.name%3Dbusy"})
			filling := strings.Repeat("a", 60<<10)
			for n := range updates { // more than client and server have room for on the way
				w.must(t, request{
					method: "PATCH", path: tenant + "/configmaps/busy", contentType: "application/merge-patch+json",
					body: fmt.Sprintf(`{"data":{"n":"%d","filling":%q}}`, n, filling),
				}, http.StatusOK)
			}
			var event struct {
				Type   string
				Object struct{ Data struct{ N string } }
			}
			events := json.NewDecoder(stream)
			for n := range updates + 1 { // the first is the object as it was
				if err := events.Decode(&event); err != nil {
					t.Fatalf("after %d of %d events: %v", n, updates+1, err)
				}
				if n > 0 && (event.Type != "MODIFIED" || event.Object.Data.N != strconv.Itoa(n-1)) {
					t.Fatalf("event %d is %s of update %s", n, event.Type, event.Object.Data.N)
				}
			}
		}},
		"watch behind a login that is gone": {reason: "credentials are asked for each minute", try: func(t *testing.T, w *world) {
			var account struct{ Status struct{ Token string } }
			accounts := tenant + "/serviceaccounts"
			w.must(t, request{method: "POST", path: accounts, body: `{"metadata":{"name":"brief"}}`}, http.StatusCreated)
			w.must(t, request{method: "POST", path: accounts + "/brief/token", body: `{"spec":{}}`}, http.StatusCreated).into(t, &account)
			w.bindWatcher(t, "accounts", `{"kind":"ServiceAccount","name":"brief","namespace":"tenant"}`, account.Status.Token)
			w.bindWatcher(t, "named-watches", subjectOf("named"), tokenOf("named"))
			path := watched + "&fieldSelector=metadata.name%3Dopen"
			streams := map[string]io.Reader{
				"account": w.stream(t, request{path: path, header: map[string]string{"Authorization": "Bearer " + account.Status.Token}}),
				"file":    w.stream(t, request{as: "named", path: path}),
			}
			gone := time.Now()
			w.must(t, request{method: "DELETE", path: accounts + "/brief"}, http.StatusOK)
			file := filepath.Join(w.dir, "tokens.csv")
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var kept strings.Builder
			for line := range strings.Lines(string(content)) {
				if !strings.HasPrefix(line, tokenOf("named")+",") {
					kept.WriteString(line)
				}
			}
			if err := os.WriteFile(file, []byte(kept.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			for name, stream := range streams {
				if code := ends(t, stream); code != http.StatusUnauthorized {
					t.Errorf("%s: the watch ends with %d", name, code)
				}
				t.Logf("%s: the watch ended %v after its login", name, time.Since(gone))
			}
		}},
	}
}
