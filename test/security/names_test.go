package security

import (
	"net/http"
	"testing"
)

// TestNames: an object that is named as a sub-resource is an object, and the
// other way round; so are kinds.
func TestNames(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), nameAttempts())
}

func nameAttempts() map[string]attempt {
	const odd = "/apis/odd.example.com/v1"
	return map[string]attempt{
		"object named as a sub-resource": {reason: "the right to gourds/status is none to a gourd named status", try: func(t *testing.T, w *world) {
			for _, name := range []string{"status", "scale"} {
				w.must(t, request{as: "outside", method: "GET", path: gourds + "/" + name}, http.StatusForbidden)
				w.must(t, request{as: "outside", method: "PATCH", path: gourds + "/" + name, contentType: merge, body: `{"spec":{"replicas":9}}`}, http.StatusForbidden)
			}
			w.must(t, request{as: "outside", method: "GET", path: gourds + "/status/scale"}, http.StatusOK)
		}},
		"sub-resource of another object": {reason: "the right to the gourd named status is none to the status of others", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "named", method: "GET", path: gourds + "/status"}, http.StatusOK)
			for _, p := range []string{"/crown/status", "/crown/scale", "/crown", "/status/status", "/status/scale", "/scale/status", ""} {
				w.must(t, request{as: "named", method: "GET", path: gourds + p}, http.StatusForbidden)
			}
		}},
		"status that writes the rest": {reason: "a sub-resource writes what is its own", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "outside", method: "PATCH", path: gourds + "/scale/status", contentType: merge, body: `{"spec":{"replicas":9},"metadata":{"labels":{"a":"b"}}}`}, http.StatusOK)
			var got struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct{ Replicas int }
			}
			w.must(t, request{method: "GET", path: gourds + "/scale"}, http.StatusOK).into(t, &got)
			if got.Spec.Replicas != 1 || len(got.Metadata.Labels) != 0 {
				t.Errorf("it wrote %+v", got)
			}
		}},
		"kind whose plural is status": {reason: "its paths are no sub-resource of a namespace", try: func(t *testing.T, w *world) {
			for _, p := range []string{"/namespaces/tenant/status", "/namespaces/vault/status/crown", "/status", "/namespaces/tenant/status/status"} {
				w.must(t, request{as: "chief", method: "GET", path: odd + p}, http.StatusForbidden)
				w.must(t, request{as: "outside", method: "GET", path: odd + p}, http.StatusForbidden)
			}
		}},
		"kind whose plural is namespaces": {reason: "a group is a part of every right", try: func(t *testing.T, w *world) {
			w.must(t, request{method: "POST", path: odd + "/namespaces", body: `{"apiVersion":"odd.example.com/v1","kind":"Space","metadata":{"name":"tenant"},"spec":{"crown":"` + treasure + `"}}`}, http.StatusCreated)
			for _, p := range []string{"/namespaces/tenant", "/namespaces", "/namespaces/tenant/status", "/namespaces/tenant/secrets", "/namespaces/tenant/configmaps/open"} {
				w.must(t, request{as: "reader", method: "GET", path: odd + p}, http.StatusForbidden)
				w.must(t, request{as: "chief", method: "GET", path: odd + p}, http.StatusForbidden)
			}
		}},
		"definition of a built-in kind": {reason: "the group is the server's", try: func(t *testing.T, w *world) {
			for group, plural := range map[string]string{"rbac.authorization.k8s.io": "clusterroles", "certificates.k8s.io": "certificatesigningrequests", "coordination.k8s.io": "leases"} {
				a := w.send(t, request{as: "definer", method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
					`"metadata":{"name":"` + plural + `.` + group + `","annotations":{"api-approved.kubernetes.io":"https://github.com/kubernetes/kubernetes/pull/1"}},` +
					`"spec":{"group":"` + group + `","scope":"Cluster","names":{"plural":"` + plural + `","kind":"Fake"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`})
				if a.code != http.StatusCreated && a.code < 400 {
					t.Errorf("%d %s", a.code, a.body)
				}
			}
			// The roles that are served are still those that count.
			w.must(t, request{as: "definer", method: "GET", path: rbacv1 + "/clusterroles/cluster-admin"}, http.StatusForbidden)
			w.must(t, request{method: "GET", path: rbacv1 + "/clusterroles/cluster-admin"}, http.StatusOK)
			w.must(t, request{as: "definer", method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "fake", "", anything)}, http.StatusForbidden)
		}},
		"path as a name": {reason: "a name is one segment of a path", try: func(t *testing.T, w *world) {
			for _, name := range []string{"..", ".", "a/b", "../../vault/secrets/crown", "a%2fb", "open/status", "a\\b", ""} {
				a := w.send(t, request{as: "definer", method: "POST", path: gourds, body: `{"apiVersion":"security.example.com/v1","kind":"Gourd","metadata":{"name":"` + name + `"}}`})
				if a.code < 400 || a.code >= 500 {
					t.Errorf("%q: %d %s", name, a.code, a.body)
				}
			}
		}},
		"namespace of the body": {reason: "the path says where", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "editor", method: "POST", path: tenant + "/configmaps", body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"vault"}}`}, http.StatusBadRequest)
			w.must(t, request{as: "editor", method: "PUT", path: open, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"closed"}}`}, http.StatusBadRequest)
		}},
	}
}
