package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// TestLimits: who makes more accounts, or larger objects, gets no more of the server. The limits are those of
// "sailplane serve", with lower numbers so that an attempt takes seconds, once the objects of the world exist.
func TestLimits(t *testing.T) {
	t.Parallel()
	var now atomic.Pointer[fairness.Limits]
	now.Store(&fairness.Limits{})
	w := serve(t, fairness.FollowLimits(func() fairness.Limits { return *now.Load() }))
	l := fairness.Defaults()
	l.RequestsPerSecond, l.Burst = 0.01, 60
	l.WriteBytesPerSecond, l.WriteBurstBytes = 1, 4<<20
	l.StoredBytesPerNamespace, l.StoredBytesPerUser, l.NamespaceFactor = 3<<20, 7<<19, 2
	now.Store(&l)
	attack(t, w, limitAttempts())
}

func limitAttempts() map[string]attempt {
	return map[string]attempt{
		"accounts of a namespace": {reason: "eight accounts get no more than the namespace", try: func(t *testing.T, w *world) {
			const accounts, each, most = 8, 40, 2 * 60
			answered := 0
			for i := range accounts {
				token := w.account(t, fmt.Sprint("worker-", i))
				for range each {
					switch a := w.send(t, token.request("GET", "/version", "")); a.code {
					case http.StatusOK:
						answered++
					case http.StatusTooManyRequests:
						if a.header.Get("Retry-After") == "" {
							t.Error("it does not say when to come back")
						}
					default:
						t.Fatalf("%d %s", a.code, short(a.body))
					}
				}
			}
			if answered > most {
				t.Errorf("%d requests were answered, want %d of %d", answered, most, accounts*each)
			}
		}},
		"bytes written": {reason: "a small patch of a large object writes all of it", try: func(t *testing.T, w *world) {
			large := request{as: "editor", method: "POST", path: tenant + "/configmaps", body: configMap("large", `{"a":"`+strings.Repeat("a", 900<<10)+`"}`)}
			w.must(t, large, http.StatusCreated)
			defer w.must(t, request{method: "DELETE", path: tenant + "/configmaps/large"}, http.StatusOK)
			patched := 0
			for i := range 20 {
				a := w.send(t, request{
					as: "editor", method: "PATCH", path: tenant + "/configmaps/large", contentType: "application/merge-patch+json",
					body: fmt.Sprintf(`{"data":{"b":"%d"}}`, i),
				})
				switch {
				case a.code == http.StatusOK:
					patched++
				case a.code != http.StatusTooManyRequests || a.header.Get("Retry-After") == "":
					t.Fatalf("%d %s", a.code, short(a.body))
				}
			}
			if patched > 4 {
				t.Errorf("%d patches of 900 KiB passed a limit of 4 MiB", patched)
			}
		}},
		"bytes stored": {reason: "a namespace does not fill the storage", try: func(t *testing.T, w *world) {
			created := 0
			var made []string
			defer func() {
				for _, path := range made {
					w.must(t, request{method: "DELETE", path: path}, http.StatusOK)
				}
			}()
			for i := range 20 {
				name := fmt.Sprint("part-", i)
				a := w.send(t, request{
					as: "chief", method: "POST", path: tenant + "/configmaps", body: configMap(name, `{"a":"`+strings.Repeat("a", 200<<10)+`"}`),
				})
				switch {
				case a.code == http.StatusCreated:
					created++
					made = append(made, tenant+"/configmaps/"+name)
				case a.code != http.StatusTooManyRequests || !strings.Contains(a.body, "StoredBytesPerNamespace"):
					t.Fatalf("%d %s", a.code, short(a.body))
				}
			}
			if created > 15 {
				t.Errorf("%d objects of 200 KiB were stored in 3 MiB", created)
			}
		}},
		"bytes stored in all namespaces": {reason: "who may write into many namespaces does not fill the storage either", try: manyNamespaces},
	}
}

// manyNamespaces fills five namespaces, none to its limit.
func manyNamespaces(t *testing.T, w *world) {
	w.must(t, request{
		method: "POST", path: "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		body: `{"metadata":{"name":"maker"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
			`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"watcher"}]}`,
	}, http.StatusCreated)
	created := 0
	for i := range 5 {
		namespace := fmt.Sprint("wide-", i)
		w.must(t, request{method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + namespace + `"}}`}, http.StatusCreated)
		for j := range 4 {
			a := w.send(t, request{
				as: "watcher", method: "POST", path: "/api/v1/namespaces/" + namespace + "/configmaps",
				body: configMap(fmt.Sprint("part-", j), `{"a":"`+strings.Repeat("a", 200<<10)+`"}`),
			})
			switch {
			case a.code == http.StatusCreated:
				created++
			case a.code != http.StatusTooManyRequests || !strings.Contains(a.body, "StoredBytesPerUser"):
				t.Fatalf("%d %s", a.code, short(a.body))
			}
		}
	}
	if created > 17 {
		t.Errorf("%d objects of 200 KiB were stored in 3.5 MiB", created)
	}
}

// token is that of a service account.
type token string

// account makes a service account in namespace tenant, and a token of it.
func (w *world) account(t *testing.T, name string) token {
	t.Helper()
	accounts := tenant + "/serviceaccounts"
	w.must(t, request{method: "POST", path: accounts, body: `{"metadata":{"name":"` + name + `"}}`}, http.StatusCreated)
	a := w.must(t, request{method: "POST", path: accounts + "/" + name + "/token", body: `{"spec":{}}`}, http.StatusCreated)
	var issued authenticationv1.TokenRequest
	if err := json.Unmarshal([]byte(a.body), &issued); err != nil {
		t.Fatal(err)
	}
	return token(issued.Status.Token)
}

// request is one of the account.
func (k token) request(method, path, body string) request {
	return request{method: method, path: path, body: body, header: map[string]string{"Authorization": "Bearer " + string(k)}}
}
