package security

import (
	"net/http"
	"testing"
)

// TestImpersonation: to act as somebody takes the right to, for each of their
// properties on its own.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), impersonationAttempts())
}

func impersonationAttempts() map[string]attempt {
	all := map[string]attempt{}
	for name, a := range map[string]struct {
		as, reason string
		header     map[string]string
		code       int
	}{
		"user":                        {"stranger", "no right", map[string]string{"Impersonate-User": "sailplane-admin"}, 403},
		"group system:masters":        {"stranger", "no right", map[string]string{"Impersonate-User": "stranger", "Impersonate-Group": "system:masters"}, 403},
		"oneself":                     {"stranger", "it takes the right too", map[string]string{"Impersonate-User": "stranger"}, 403},
		"anonymous":                   {"stranger", "it takes the right too", map[string]string{"Impersonate-User": "system:anonymous"}, 403},
		"uid":                         {"impersonator", "the right to be the user is not that to have a UID", map[string]string{"Impersonate-User": "reader", "Impersonate-Uid": "uid-of-reader"}, 403},
		"extra":                       {"impersonator", "the right to be the user is not that to have more", map[string]string{"Impersonate-User": "reader", "Impersonate-Extra-Scopes": "all"}, 403},
		"encoded extra":               {"impersonator", "a name is decoded before it is decided about", map[string]string{"Impersonate-User": "reader", "Impersonate-Extra-A%2fb": "all"}, 403},
		"group with the user's right": {"impersonator", "the right to be the user is not that to be in a group", map[string]string{"Impersonate-User": "reader", "Impersonate-Group": "system:masters"}, 403},
		"other user":                  {"impersonator", "the right is for one user", map[string]string{"Impersonate-User": "chief"}, 403},
		"user in other case":          {"impersonator", "names are compared as they are", map[string]string{"Impersonate-User": "Reader"}, 403},
		"several users":               {"impersonator", "the name is one string", map[string]string{"Impersonate-User": "reader,chief"}, 403},
		"account as user":             {"userized", "an account takes the right for accounts, not for users", map[string]string{"Impersonate-User": "system:serviceaccount:vault:keeper"}, 403},
		"masters with every user":     {"userized", "groups take a right of their own", map[string]string{"Impersonate-User": "reader", "Impersonate-Group": "system:masters"}, 403},
		"account elsewhere":           {"editor", "the role edit may be accounts of its own namespace", map[string]string{"Impersonate-User": "system:serviceaccount:vault:keeper"}, 403},
		"group without user":          {"impersonator", "nobody in a group is nobody", map[string]string{"Impersonate-Group": "system:masters"}, 0},
		"uid without user":            {"impersonator", "nobody with a UID is nobody", map[string]string{"Impersonate-Uid": "1"}, 0},
		"extra without user":          {"impersonator", "nobody with more is nobody", map[string]string{"Impersonate-Extra-A": "b"}, 0},
		"without credentials":         {"", "who calls comes first", map[string]string{"Impersonate-User": "reader"}, 401},
	} {
		all[name] = attempt{reason: a.reason, try: func(t *testing.T, w *world) {
			for _, r := range []request{
				{method: "GET", path: crown}, {method: "GET", path: open}, {method: "POST", path: whoami, body: review}, {method: "GET", path: "/api"},
			} {
				r.as, r.header = a.as, a.header
				// To name a group but no user is an error of its own: 400, or 500 as Kubernetes has it.
				if got := w.send(t, r); got.code != a.code && (a.code != 0 || got.code < 400) {
					t.Errorf("%s %s: %s: %d, want %d: %s", r.method, r.path, a.reason, got.code, a.code, short(got.body))
				}
			}
		}}
	}
	all["two users"] = attempt{reason: "the first counts, for the decision and for the request", try: func(t *testing.T, w *world) {
		both := line("impersonator", "GET", crown, "Impersonate-User: reader", "Impersonate-User: sailplane-admin")
		if a := w.raw(t, both); len(a) != 1 || a[0].code != http.StatusForbidden {
			t.Errorf("%+v", a)
		}
	}}
	all["rights of the impersonator"] = attempt{reason: "who acts as somebody has their rights only", try: func(t *testing.T, w *world) {
		header := map[string]string{"Impersonate-User": "reader"}
		w.must(t, request{as: "impersonator", method: "GET", path: open, header: header}, http.StatusOK)
		w.must(t, request{as: "impersonator", method: "GET", path: crown, header: header}, http.StatusForbidden)
		w.must(t, request{method: "GET", path: crown, header: map[string]string{"Impersonate-User": "reader"}}, http.StatusForbidden)
	}}
	return all
}
