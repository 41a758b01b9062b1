package security

import (
	"encoding/base64"
	"encoding/json"
	"io/fs"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestEscalation: who may write roles and bindings cannot give rights that they
// do not have, by any door.
func TestEscalation(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), escalationAttempts())
}

const (
	apply = "application/apply-patch+yaml"
	merge = "application/merge-patch+json"
	jsonp = "application/json-patch+json"
)

func role(kind, name, meta, rest string) string {
	return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"` + meta + `}` + rest + `}`
}

const (
	anything   = `,"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]`
	secrets    = `,"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]`
	anyPath    = `,"rules":[{"nonResourceURLs":["*"],"verbs":["get"]}]`
	escalating = `,"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["escalate"]}]`
	binding    = `,"rules":[{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["bind"]}]`
	being      = `,"rules":[{"apiGroups":[""],"resources":["users","groups"],"verbs":["impersonate"]}]`
	approving  = `,"rules":[{"apiGroups":["certificates.k8s.io"],"resources":["signers"],"verbs":["approve","sign"]}]`
)

func toBind(kind, name string) string {
	return `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"` + kind + `","name":"` + name + `"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"climber"}]`
}

func escalationAttempts() map[string]attempt {
	in := rbacv1 + "/namespaces/vault"
	me := `{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"climber"}`
	all := map[string]attempt{}
	for name, r := range map[string]request{
		"role with more rights":         {method: "POST", path: in + "/roles", body: role("Role", "a", "", secrets)},
		"cluster role with all rights":  {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", anything)},
		"cluster role for every path":   {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", anyPath)},
		"role for escalate":             {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", escalating)},
		"role for bind":                 {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", binding)},
		"role for impersonation":        {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", being)},
		"role for signers":              {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", approving)},
		"role, dry run":                 {method: "POST", path: rbacv1 + "/clusterroles?dryRun=All", body: role("ClusterRole", "a", "", anything)},
		"update of one's own role":      {method: "PUT", path: rbacv1 + "/clusterroles/climber", body: role("ClusterRole", "climber", "", anything)},
		"patch of one's own role":       {method: "PATCH", path: rbacv1 + "/clusterroles/climber", contentType: jsonp, body: `[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}}]`},
		"merge into one's own role":     {method: "PATCH", path: rbacv1 + "/clusterroles/climber", contentType: merge, body: `{"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`},
		"apply to one's own role":       {method: "PATCH", path: rbacv1 + "/clusterroles/climber?fieldManager=a&force=true", contentType: apply, body: role("ClusterRole", "climber", "", anything)},
		"apply of a new role":           {method: "PATCH", path: in + "/roles/new?fieldManager=a", contentType: apply, body: role("Role", "new", "", secrets)},
		"update that creates":           {method: "PUT", path: rbacv1 + "/clusterroles/new", body: role("ClusterRole", "new", "", anything)},
		"label of aggregation":          {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", `,"labels":{"rbac.authorization.k8s.io/aggregate-to-admin":"true"}`, secrets)},
		"rule of aggregation":           {method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", `,"aggregationRule":{"clusterRoleSelectors":[{}]}`)},
		"rule of aggregation, patched":  {method: "PATCH", path: rbacv1 + "/clusterroles/climber", contentType: merge, body: `{"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"kubernetes.io/bootstrapping":"rbac-defaults"}}]}}`},
		"binding to cluster-admin":      {method: "POST", path: rbacv1 + "/clusterrolebindings", body: role("ClusterRoleBinding", "a", "", toBind("ClusterRole", "cluster-admin"))},
		"binding in a namespace":        {method: "POST", path: in + "/rolebindings", body: role("RoleBinding", "a", "", toBind("ClusterRole", "admin"))},
		"binding to a namespace's role": {method: "POST", path: rbacv1 + "/namespaces/tenant/rolebindings", body: role("RoleBinding", "a", "", toBind("Role", "watcher"))},
		"binding to a role to come":     {method: "POST", path: in + "/rolebindings", body: role("RoleBinding", "a", "", toBind("Role", "later")), contentType: "application/json"},
		"subject into a binding":        {method: "PATCH", path: rbacv1 + "/clusterrolebindings/cluster-admin", contentType: jsonp, body: `[{"op":"add","path":"/subjects/-","value":` + me + `}]`},
		"subjects of a binding":         {method: "PUT", path: rbacv1 + "/clusterrolebindings/cluster-admin", body: role("ClusterRoleBinding", "cluster-admin", "", toBind("ClusterRole", "cluster-admin"))},
		"apply to a binding":            {method: "PATCH", path: rbacv1 + "/clusterrolebindings/cluster-admin?fieldManager=a&force=true", contentType: apply, body: role("ClusterRoleBinding", "cluster-admin", "", toBind("ClusterRole", "cluster-admin"))},
		"other role of a binding":       {method: "PATCH", path: rbacv1 + "/clusterrolebindings/climber", contentType: merge, body: `{"roleRef":{"name":"cluster-admin"}}`},
		"everybody into a binding":      {method: "PATCH", path: rbacv1 + "/clusterrolebindings/cluster-admin", contentType: merge, body: `{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:authenticated"}]}`},
		"status as a way round":         {method: "PATCH", path: rbacv1 + "/clusterroles/climber/status", contentType: merge, body: `{"rules":[]}`},
		"token of another account":      {method: "POST", path: vault + "/serviceaccounts/keeper/token", body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`},
	} {
		r.as = "climber"
		all[name] = attempt{reason: "nobody gives what they do not have", try: func(t *testing.T, w *world) {
			got := w.send(t, r)
			if got.code < 400 || got.code >= 500 {
				t.Errorf("%d: %s", got.code, short(got.body))
			}
			w.stays(t)
		}}
	}
	all["binding made again"] = attempt{reason: "a new binding is decided about as the first", try: func(t *testing.T, w *world) {
		const path = rbacv1 + "/clusterrolebindings"
		w.must(t, request{as: "climber", method: "DELETE", path: path + "/impersonator"}, http.StatusOK)
		w.must(t, request{as: "climber", method: "POST", path: path, body: role("ClusterRoleBinding", "impersonator", "", toBind("ClusterRole", "cluster-admin"))}, http.StatusForbidden)
		w.stays(t)
	}}
	all["tokens by the role edit"] = attempt{reason: "edit is for its own namespace", try: func(t *testing.T, w *world) {
		const ask = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest"}`
		for _, as := range []string{"editor", "chief", "reader"} {
			w.must(t, request{as: as, method: "POST", path: vault + "/serviceaccounts/keeper/token", body: ask}, http.StatusForbidden)
		}
		w.must(t, request{as: "reader", method: "POST", path: tenant + "/serviceaccounts/keeper/token", body: ask}, http.StatusForbidden)
	}}
	all["tokens for another account by the body"] = attempt{reason: "the path says whose token it is", try: func(t *testing.T, w *world) {
		a := w.send(t, request{
			as: "editor", method: "POST", path: tenant + "/serviceaccounts/keeper/token",
			body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{"name":"keeper","namespace":"vault"}}`,
		})
		if a.code < 400 {
			t.Errorf("%d %s", a.code, a.body)
		}
	}}
	all["tokens by a secret"] = attempt{reason: "no secret is ever filled with a token", try: func(t *testing.T, w *world) {
		w.must(t, request{as: "editor", method: "POST", path: tenant + "/secrets", body: `{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token",` +
			`"metadata":{"name":"token","annotations":{"kubernetes.io/service-account.name":"keeper"}}}`}, http.StatusCreated)
		// Something later that is seen: what was to be filled would be by then.
		w.must(t, request{as: "editor", method: "PATCH", path: tenant + "/secrets/token", contentType: merge, body: `{"metadata":{"labels":{"a":"b"}}}`}, http.StatusOK)
		if a := w.must(t, request{method: "GET", path: tenant + "/secrets/token"}, http.StatusOK); strings.Contains(a.body, `"token":"`) {
			t.Errorf("it was filled: %s", a.body)
		}
	}}
	all["rights of the role admin"] = attempt{reason: "it is for its namespace, and no more than it has", try: func(t *testing.T, w *world) {
		here := rbacv1 + "/namespaces/tenant"
		for _, r := range []request{
			{method: "POST", path: here + "/roles", body: role("Role", "a", "", anything)},
			{method: "POST", path: here + "/rolebindings", body: role("RoleBinding", "a", "", toBind("ClusterRole", "cluster-admin"))},
			{method: "POST", path: rbacv1 + "/namespaces/vault/rolebindings", body: role("RoleBinding", "a", "", toBind("ClusterRole", "view"))},
			{method: "POST", path: rbacv1 + "/clusterroles", body: role("ClusterRole", "a", "", "")},
			{method: "POST", path: rbacv1 + "/clusterrolebindings", body: role("ClusterRoleBinding", "a", "", toBind("ClusterRole", "admin"))},
			{method: "PATCH", path: tenant, contentType: merge, body: `{"metadata":{"labels":{"a":"b"}}}`},
			{method: "POST", path: tenant + "/resourcequotas", body: `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"a"}}`},
		} {
			r.as = "chief"
			w.must(t, r, http.StatusForbidden)
		}
	}}
	all["owner that blocks deletion"] = attempt{reason: "blockOwnerDeletion takes the right to hold the owner up", request: request{
		as: "climber", method: "POST", path: vault + "/configmaps",
		body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"crown","uid":"1","blockOwnerDeletion":true}]}}`,
	}, code: http.StatusForbidden}
	all["review of others' rights"] = attempt{reason: "to ask what others may do takes a right", request: request{
		as: "climber", method: "POST", path: "/apis/authorization.k8s.io/v1/subjectaccessreviews",
		body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","spec":{"user":"chief","resourceAttributes":{"verb":"get","resource":"secrets"}}}`,
	}, code: http.StatusForbidden}
	all["review of others' tokens"] = attempt{reason: "to ask whose a token is takes a right", request: request{
		as: "climber", method: "POST", path: "/apis/authentication.k8s.io/v1/tokenreviews",
		body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenReview","spec":{"token":"token-of-chief"}}`,
	}, code: http.StatusForbidden}
	all["review as another user"] = attempt{reason: "a review of oneself is about the caller", try: func(t *testing.T, w *world) {
		a := w.must(t, request{
			as: "reader", method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
			body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"user":"chief","resourceAttributes":{"verb":"get","resource":"secrets","namespace":"vault"}},"status":{"allowed":true}}`,
		}, http.StatusCreated)
		if strings.Contains(a.body, `"allowed":true`) {
			t.Errorf("it may: %s", a.body)
		}
		w.remains(t, request{as: "reader"})
	}}
	return all
}

// stays tells whether the climber got no further.
func (w *world) stays(t *testing.T) {
	t.Helper()
	for _, r := range []request{
		{method: "GET", path: crown},
		{method: "GET", path: "/metrics"},
		{method: "DELETE", path: vault},
		{method: "GET", path: crown, header: map[string]string{"Impersonate-User": "chief"}},
	} {
		r.as = "climber"
		w.must(t, r, http.StatusForbidden)
	}
}

// TestCertificates: no certificate is had but by those who approve and sign.
func TestCertificates(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), certificateAttempts())
}

const signing = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// asking is a request for a client certificate.
func asking(t *testing.T, name, signer, more string, groups ...string) string {
	t.Helper()
	csr, err := json.Marshal(base64.StdEncoding.EncodeToString(certificateRequest(t, "sailplane-admin", groups)))
	if err != nil {
		t.Fatal(err)
	}
	return `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"` + name + `"},"spec":{"signerName":"` + signer +
		`","usages":["client auth"],"request":` + string(csr) + more + `}}`
}

func certificateAttempts() map[string]attempt {
	const client = "kubernetes.io/kube-apiserver-client"
	return map[string]attempt{
		"files of the server": {reason: "keys, the kubeconfig and the record are for their owner", try: func(t *testing.T, w *world) {
			if runtime.GOOS == "windows" {
				t.Skip("modes are made up there")
			}
			found := 0
			if err := filepath.WalkDir(w.dir, func(name string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() || filepath.Ext(name) == ".crt" {
					return err
				}
				info, err := d.Info()
				if err == nil && info.Mode().Perm()&0o077 != 0 {
					t.Errorf("%s has mode %04o", name, info.Mode().Perm())
				}
				found++
				return err
			}); err != nil || found < 4 {
				t.Errorf("%d files: %v", found, err)
			}
		}},
		"request for system:masters": {reason: "a client certificate of that group is never signed", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "climber", method: "POST", path: signing, body: asking(t, "masters", client, "", "system:masters")}, http.StatusForbidden)
		}},
		"request for others": {reason: "the server says who asks", try: func(t *testing.T, w *world) {
			a := w.must(t, request{
				as: "climber", method: "POST", path: signing,
				body: asking(t, "others", client, `,"username":"sailplane-admin","groups":["system:masters"],"uid":"0"`),
			}, http.StatusCreated)
			var got struct {
				Spec struct {
					Username string
					Groups   []string
				}
			}
			if a.into(t, &got); got.Spec.Username != "climber" || len(got.Spec.Groups) != 1 {
				t.Errorf("it is of %+v", got.Spec)
			}
		}},
		"approval on creation": {reason: "nothing is decided at first", try: func(t *testing.T, w *world) {
			body := strings.TrimSuffix(asking(t, "approved", client, ""), "}") +
				`,"status":{"conditions":[{"type":"Approved","status":"True","reason":"a"}],"certificate":"YQ=="}}`
			a := w.must(t, request{as: "climber", method: "POST", path: signing, body: body}, http.StatusCreated)
			if strings.Contains(a.body, "Approved") || strings.Contains(a.body, "YQ==") {
				t.Errorf("it is decided: %s", a.body)
			}
		}},
		"approval without the right": {reason: "it takes the right to approve for the signer", try: func(t *testing.T, w *world) {
			for _, signer := range []string{client, "example.com/any", "kubernetes.io/kubelet-serving"} {
				name := strings.ReplaceAll(signer, "/", ".")
				body := asking(t, name, signer, "")
				if signer == "kubernetes.io/kubelet-serving" {
					body = strings.ReplaceAll(body, "client auth", "server auth")
				}
				if a := w.send(t, request{as: "climber", method: "POST", path: signing, body: body}); a.code != http.StatusCreated {
					t.Fatalf("%s: %d %s", signer, a.code, a.body)
				}
				patch := `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"a"}]}}`
				w.must(t, request{as: "climber", method: "PATCH", path: signing + "/" + name + "/approval", contentType: merge, body: patch}, http.StatusForbidden)
				// status and the object itself are no way round.
				for _, sub := range []string{"/status", ""} {
					w.send(t, request{as: "climber", method: "PATCH", path: signing + "/" + name + sub, contentType: merge, body: patch})
				}
				if a := w.must(t, request{method: "GET", path: signing + "/" + name}, http.StatusOK); strings.Contains(a.body, `"Approved"`) {
					t.Errorf("%s: it is approved: %s", signer, a.body)
				}
			}
		}},
		"certificate without the right": {reason: "it takes the right to sign for the signer", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "climber", method: "POST", path: signing, body: asking(t, "signed", client, "")}, http.StatusCreated)
			approve := request{method: "PATCH", path: signing + "/signed/approval", contentType: merge, body: `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"a"}]}}`}
			w.must(t, approve, http.StatusOK)
			for _, sub := range []string{"/status", "/approval", ""} {
				w.send(t, request{as: "climber", method: "PATCH", path: signing + "/signed" + sub, contentType: merge, body: `{"status":{"certificate":"YQ=="}}`})
			}
			if a := w.must(t, request{method: "GET", path: signing + "/signed"}, http.StatusOK); strings.Contains(a.body, `"certificate":"`) {
				t.Errorf("it is signed: %s", a.body)
			}
		}},
		"other request after approval": {reason: "what was approved stays", try: func(t *testing.T, w *world) {
			w.must(t, request{as: "climber", method: "POST", path: signing, body: asking(t, "swapped", client, "")}, http.StatusCreated)
			w.must(t, request{method: "PATCH", path: signing + "/swapped/approval", contentType: merge, body: `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"a"}]}}`}, http.StatusOK)
			before := specOf(t, w.must(t, request{method: "GET", path: signing + "/swapped"}, http.StatusOK))
			for _, sub := range []string{"", "/status", "/approval"} {
				w.send(t, request{
					as: "climber", method: "PATCH", path: signing + "/swapped" + sub, contentType: merge,
					body: `{"spec":` + specOf(t, answer{body: asking(t, "swapped", client, "", "system:masters")}) + `}`,
				})
			}
			if after := specOf(t, w.must(t, request{method: "GET", path: signing + "/swapped"}, http.StatusOK)); after != before {
				t.Errorf("it was %s and is %s", before, after)
			}
		}},
	}
}

func specOf(t *testing.T, a answer) string {
	t.Helper()
	var o struct{ Spec json.RawMessage }
	a.into(t, &o)
	return string(o.Spec)
}
