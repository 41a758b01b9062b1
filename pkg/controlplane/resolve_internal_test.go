package controlplane

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// TestBrief: of a long query, what decides the verb and the name is known before the
// caller is, and everything when they are.
func TestBrief(t *testing.T) {
	t.Parallel()
	resolver := &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	long := "&labelSelector=" + strings.Repeat("a%3Db,", 1_000) + "a"
	cases := map[string]struct {
		reason, query string
		method        string
	}{
		"list":              {"nothing says otherwise", "limit=1" + long, "GET"},
		"watch":             {"the first value counts", "watch=1" + long + "&watch=0", "GET"},
		"watch by name":     {"a parameter without a value is true", "watch" + long, "GET"},
		"no watch":          {"it says so", "watch=False" + long + "&watch=true", "GET"},
		"odd watch":         {"all but false and 0 is true", "watch=" + strings.Repeat("1", 1_000) + long, "GET"},
		"escaped":           {"names may be escaped", "w%61tch=tru%65" + long, "GET"},
		"broken":            {"what cannot be read is not there", "watch=%zz&watch=0" + long, "GET"},
		"semicolon":         {"it separates nothing, and is not allowed", "watch=1;a&watch=0" + long, "GET"},
		"one object":        {"a watch of one may be allowed by its name", "watch=1&fieldSelector=metadata.name%3Dopen" + long, "GET"},
		"malformed":         {"the verb is known all the same", "watch=1&labelSelector=" + strings.Repeat("!", 2_000), "GET"},
		"deletecollection":  {"selectors come later for all verbs", "fieldSelector=metadata.name%3Dopen" + long, "DELETE"},
		"create":            {"it has no selectors", "dryRun=All" + long, "POST"},
		"long and not read": {"a long field selector comes later", "fieldSelector=" + url.QueryEscape(strings.Repeat("spec.a=b,", 500)+"spec.a=b"), "GET"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequest(tc.method, "/api/v1/namespaces/a/configmaps?"+tc.query, nil)
			want, err := resolver.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := brief{resolver}.NewRequestInfo(r)
			if err != nil {
				t.Fatal(err)
			}
			later := cmpopts.IgnoreFields(apirequest.RequestInfo{}, "LabelSelector", "FieldSelector", "Name")
			if diff := cmp.Diff(want, got, later); diff != "" {
				t.Errorf("%s: before the caller is known (-want +got):\n%s", tc.reason, diff)
			}
			if len(got.LabelSelector) > shortSelector || len(got.FieldSelector) > shortSelector || want.Name != "" && got.Name != want.Name {
				t.Errorf("%s: name %q, want %q, and no long selectors", tc.reason, got.Name, want.Name)
			}
			var whole *apirequest.RequestInfo
			resolved(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				whole, _ = apirequest.RequestInfoFrom(r.Context())
			}), resolver).ServeHTTP(httptest.NewRecorder(), r.WithContext(apirequest.WithRequestInfo(r.Context(), got)))
			if diff := cmp.Diff(want, whole); diff != "" {
				t.Errorf("%s: when the caller is known (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
