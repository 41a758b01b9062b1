package certificates

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// leafFor is a certificate in PEM that signs itself.
func leafFor(t *testing.T, key crypto.Signer, from time.Time, life time.Duration, names ...string) []byte {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: from.Add(life), DNSNames: names}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// stub is an empty request in DER.
func stub(t *testing.T, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// newPodRequest is a good request for a key.
func newPodRequest(t *testing.T, name string, key crypto.Signer) *podRequest {
	t.Helper()
	return &podRequest{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: "example.com/client", PodName: "p", PodUID: "1", ServiceAccountName: "s", ServiceAccountUID: "2",
			NodeName: "n", NodeUID: "3", StubPKCS10Request: stub(t, key), MaxExpirationSeconds: new(int32(86400)),
			UnverifiedUserAnnotations: map[string]string{"Example.com/a": "any thing"},
		},
	}
}

func TestValidatePodSpec(t *testing.T) {
	t.Parallel()
	type spec = certificatesv1.PodCertificateRequestSpec
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged := stub(t, newKey(t))
	forged[len(forged)-1] ^= 1
	const seconds = "spec.maxExpirationSeconds: FieldValueInvalid: must be in the range [3600, "
	cases := map[string]struct {
		reason string
		change func(*spec)
		want   string
	}{
		"good":      {"all that is needed is there", func(*spec) {}, ""},
		"no signer": {"somebody is to sign", func(s *spec) { s.SignerName = "" }, "spec.signerName: FieldValueRequired: signerName must be provided"},
		"annotations": {
			"each has a domain", func(s *spec) { s.UnverifiedUserAnnotations = map[string]string{"a": "b"} },
			`spec.unverifiedUserAnnotations: FieldValueInvalid: must be a domain-prefixed key (such as "acme.io/foo")`,
		},
		"much": {
			"annotations have a limit", func(s *spec) { s.UnverifiedUserAnnotations["example.com/b"] = strings.Repeat("b", 256*1024) },
			"spec.unverifiedUserAnnotations: FieldValueTooLong: may not be more than 262144 bytes",
		},
		"who": {
			"a pod has a UID, and so has the rest", func(s *spec) { s.PodUID, s.ServiceAccountUID, s.NodeUID = "", "", types.UID(strings.Repeat("u", 129)) },
			"spec.podUID: FieldValueInvalid: must not be empty\nspec.serviceAccountUID: FieldValueInvalid: must not be empty\n" +
				"spec.nodeUID: FieldValueTooLong: may not be more than 128 bytes",
		},
		"short":      {"an hour is the least", func(s *spec) { s.MaxExpirationSeconds = new(int32(3599)) }, seconds + "7862400]"},
		"long":       {"91 days are the most", func(s *spec) { s.MaxExpirationSeconds = new(int32(7862401)) }, seconds + "7862400]"},
		"Kubernetes": {"a day is the most there", func(s *spec) { s.SignerName, s.MaxExpirationSeconds = "a.kubernetes.io/b", new(int32(86401)) }, seconds + "86400]"},
		"no key":     {"there is nothing to sign", func(s *spec) { s.StubPKCS10Request = nil }, "spec.stubPKCS10Request: FieldValueRequired"},
		"big":        {"a request is small", func(s *spec) { s.StubPKCS10Request = make([]byte, 10*1024+1) }, "spec.stubPKCS10Request: FieldValueTooLong: may not be more than 10240 bytes"},
		"x":          {"it is a request", func(s *spec) { s.StubPKCS10Request = []byte("x") }, "spec.stubPKCS10Request: FieldValueInvalid: must be a valid PKCS#10 CSR"},
		"forged":     {"the signature proves who has the key", func(s *spec) { s.StubPKCS10Request = forged }, "spec.stubPKCS10Request: FieldValueInvalid: invalid signature"},
		"small key":  {"a key is long enough", func(s *spec) { s.StubPKCS10Request = stub(t, small) }, "spec.stubPKCS10Request: FieldValueInvalid: elliptic public keys must use curve P256, P384, or P521"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newPodRequest(t, "a", newKey(t))
			tc.change(&r.Spec)
			if diff := cmp.Diff(tc.want, text(validatePodSpec(r))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	for _, name := range []string{"podName", "serviceAccountName", "nodeName"} {
		r := newPodRequest(t, "a", newKey(t))
		r.Spec.PodName, r.Spec.ServiceAccountName, r.Spec.NodeName = "a_b", "a_b", "a_b"
		if got := text(validatePodSpec(r)); !strings.Contains(got, "spec."+name+": FieldValueInvalid") {
			t.Errorf("%s is a name: got %s", name, got)
		}
	}
}

// ended is the status of a request that ended in some way.
func ended(how string) certificatesv1.PodCertificateRequestStatus {
	return certificatesv1.PodCertificateRequestStatus{Conditions: []metav1.Condition{
		{Type: how, Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.NewTime(time.Now().Truncate(time.Second))},
	}}
}

// issuedFor is the status of a request with its certificate.
func issuedFor(t *testing.T, key crypto.Signer, from time.Time, life time.Duration, names ...string) certificatesv1.PodCertificateRequestStatus {
	t.Helper()
	from = from.Truncate(time.Second)
	s := ended("Issued")
	s.CertificateChain = string(leafFor(t, key, from, life, names...))
	s.NotBefore, s.NotAfter = new(metav1.NewTime(from)), new(metav1.NewTime(from.Add(life)))
	s.BeginRefreshAt = new(metav1.NewTime(from.Add(life / 2)))
	return s
}

func TestValidatePodStatus(t *testing.T) {
	t.Parallel()
	type status = certificatesv1.PodCertificateRequestStatus
	now, key := time.Now(), newKey(t)
	good := issuedFor(t, key, now, 2*time.Hour, "a.example.com")
	with := func(change func(*status)) status {
		s := *good.DeepCopy()
		change(&s)
		return s
	}
	denied := ended("Denied")
	const chain, kept = "status.certificateChain: FieldValueInvalid: ", `status: FieldValueInvalid: status is immutable unless transitioning to "Issued", "Denied", or "Failed"`
	cases := map[string]struct {
		reason   string
		old, now status
		want     string
	}{
		"nothing": {reason: "a write may change nothing"},
		"denied":  {reason: "the signer refuses", now: denied},
		"issued":  {reason: "the signer signs", now: good},
		"chain":   {reason: "others may follow", now: with(func(s *status) { s.CertificateChain += string(inPEM(newAuthority(t, time.Hour).certificate)) })},
		"halfway": {reason: "it is one step", now: with(func(s *status) { s.Conditions = nil }), want: kept},
		"again":   {reason: "the end is the end", old: denied, now: good, want: "status: FieldValueInvalid: immutable after PodCertificateRequest is issued, denied, or failed"},
		"denied and signed": {
			reason: "what is refused has no certificate", now: with(func(s *status) { s.Conditions = denied.Conditions }),
			want: "status: FieldValueInvalid: non-condition status fields must be empty when denying or failing the PodCertificateRequest",
		},
		"other":  {reason: "there are three ends", now: ended("Approved"), want: "status.conditions[0].type: FieldValueNotSupported"},
		"unsure": {reason: "an end is true", now: with(func(s *status) { s.Conditions[0].Status = "False" }), want: "status.conditions[0].status: FieldValueNotSupported"},
		"both": {
			reason: "there is one end", now: with(func(s *status) { s.Conditions = append(s.Conditions, denied.Conditions...) }),
			want: `status.conditions[1].type: FieldValueInvalid: There may be at most one condition with type "Issued", "Denied", or "Failed"`,
		},
		"no reason": {reason: "a condition has a reason", now: with(func(s *status) { s.Conditions[0].Reason = "" }), want: "status.conditions[0].reason: FieldValueRequired"},
		"no chain":  {reason: "what is issued is there", now: with(func(s *status) { s.CertificateChain = "" }), want: chain + "issued certificate chain must contain at least one certificate"},
		"key": {
			reason: "a key has no business there", now: with(func(s *status) { s.CertificateChain += string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"})) }),
			want: chain + "issued certificate chain must consist entirely of CERTIFICATE PEM blocks",
		},
		"x": {
			reason: "it is a certificate", now: with(func(s *status) { s.CertificateChain = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"})) }),
			want: chain + "leaf certificate does not parse as valid X.509",
		},
		"then x": {
			reason: "so are the others", now: with(func(s *status) { s.CertificateChain += string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"})) }),
			want: chain + "intermediate certificate does not parse as valid X.509",
		},
		"big":         {reason: "a chain is short", now: with(func(s *status) { s.CertificateChain = strings.Repeat(" ", 100*1024+1) }), want: "status.certificateChain: FieldValueTooLong: may not be more than 102400 bytes"},
		"other key":   {reason: "it is for who asked", now: issuedFor(t, newKey(t), now, 2*time.Hour), want: chain + "leaf certificate was not issued to the requested public key"},
		"odd name":    {reason: "a name is a name", now: issuedFor(t, key, now, 2*time.Hour, "a..b"), want: chain + "leaf certificate's DNSName should not contain '..'"},
		"dotted name": {reason: "a name has no end", now: issuedFor(t, key, now, 2*time.Hour, "a.b."), want: chain + "leaf certificate's DNSName should not start or end with '.'"},
		"no times": {
			reason: "the agent reads the times", now: with(func(s *status) { s.NotBefore, s.NotAfter, s.BeginRefreshAt = nil, nil, nil }),
			want: "status.notBefore: FieldValueRequired: must be present and consistent with the issued certificate\n" +
				"status.notAfter: FieldValueRequired: must be present and consistent with the issued certificate\n" +
				"status.beginRefreshAt: FieldValueRequired: must be present and in the range [notbefore+10min, notafter-10min]",
		},
		"other start": {reason: "it is that of the certificate", now: with(func(s *status) { s.NotBefore = s.NotAfter }), want: "status.notBefore: FieldValueInvalid: must be set to the NotBefore time encoded in the leaf certificate"},
		"other end":   {reason: "it is that of the certificate", now: with(func(s *status) { s.NotAfter = s.NotBefore }), want: "status.notAfter: FieldValueInvalid: must be set to the NotAfter time encoded in the leaf certificate"},
		"long ago":    {reason: "a certificate is fresh", now: issuedFor(t, key, now.Add(-6*time.Minute), 2*time.Hour), want: "status.notBefore: FieldValueInvalid: must be set to within 5 minutes of kube-apiserver's current time"},
		"short":       {reason: "it lasts an hour", now: issuedFor(t, key, now, 59*time.Minute), want: chain + "leaf certificate lifetime must be >= 1 hour"},
		"long":        {reason: "it lasts no longer than asked for", now: issuedFor(t, key, now, 25*time.Hour), want: chain + "leaf certificate lifetime must be <= spec.maxExpirationSeconds (86400)"},
		"at once":     {reason: "there is time before the refresh", now: with(func(s *status) { s.BeginRefreshAt = s.NotBefore }), want: "status.beginRefreshAt: FieldValueInvalid: must be at least 10 minutes after status.notBefore"},
		"too late":    {reason: "there is time for the refresh", now: with(func(s *status) { s.BeginRefreshAt = s.NotAfter }), want: "status.beginRefreshAt: FieldValueInvalid: must be at least 10 minutes before status.notAfter"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := newPodRequest(t, "a", key)
			r := old.DeepCopy()
			old.Status, r.Status = tc.old, tc.now
			if diff := cmp.Diff(tc.want, text(validatePodStatus(r, old, now))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestPodRequests runs against one server: each sub-test works in names of its own.
func TestPodRequests(t *testing.T) {
	t.Parallel()
	config := start(t, PodCertificateRequests{})
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"Life": podLife, "Sign": podSign, "Table": podTable, "Served": podServed, "Apply": podApply,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, config)
		})
	}
}

func podLife(t *testing.T, config *rest.Config) {
	ctx, requests := t.Context(), asAnyone(t, config, called("node")).PodCertificateRequests("default")
	r := newPodRequest(t, "life", newKey(t))
	r.Spec.MaxExpirationSeconds, r.Spec.PodName, r.Status = nil, "life", ended("Denied")
	r, err := requests.Create(ctx, r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if *r.Spec.MaxExpirationSeconds != 86400 || len(r.Status.Conditions) > 0 || r.Generation != 0 {
		t.Errorf("a new request is for a day, and has no status: %+v", r)
	}
	change := r.DeepCopy()
	change.Spec.PodName = "other"
	_, err = requests.Update(ctx, change, metav1.UpdateOptions{})
	wants(t, err, "spec: Invalid value", "the spec stays")
	change = r.DeepCopy()
	change.Labels, change.Status = map[string]string{"a": "b"}, ended("Denied")
	if change, err = requests.Update(ctx, change, metav1.UpdateOptions{}); err != nil || change.Labels["a"] != "b" || len(change.Status.Conditions) > 0 {
		t.Errorf("an update changes metadata only: %+v, %v", change, err)
	}
	for selector, want := range map[string]int{
		"spec.podName=life": 1, "spec.podName=life,spec.nodeName=n,spec.signerName=example.com/client": 1, "spec.podName=life,spec.nodeName=m": 0,
	} {
		if list, err := requests.List(ctx, metav1.ListOptions{FieldSelector: selector}); err != nil || len(list.Items) != want {
			t.Errorf("requests are selected by %s: got %v, %v", selector, list, err)
		}
	}
	bad := newPodRequest(t, "life-bad", newKey(t))
	bad.Spec.StubPKCS10Request = []byte("x")
	_, err = requests.Create(ctx, bad, metav1.CreateOptions{})
	wants(t, err, `PodCertificateRequest.certificates.k8s.io "life-bad" is invalid: spec.stubPKCS10Request: Invalid value: must be a valid PKCS#10 CSR`, "no request")
}

func podSign(t *testing.T, config *rest.Config) {
	ctx, key := t.Context(), newKey(t)
	node, signer := asAnyone(t, config, called("node")).PodCertificateRequests("default"), asAnyone(t, config, called("sign")).PodCertificateRequests("default")
	r, err := node.Create(ctx, newPodRequest(t, "sign", key), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change := r.DeepCopy()
	change.Status = issuedFor(t, key, time.Now(), 2*time.Hour)
	change.Spec.PodName, change.Labels = "other", map[string]string{"a": "b"}
	_, err = node.UpdateStatus(ctx, change, metav1.UpdateOptions{})
	wants(t, err, `spec.signerName: Forbidden: User "node" is not permitted to "sign" for signer "example.com/client"`, "signing takes a permission")
	if !apierrors.IsInvalid(err) {
		t.Errorf("kube-apiserver says that it is invalid: got %v", err)
	}
	if _, err := node.UpdateStatus(ctx, r, metav1.UpdateOptions{}); err != nil {
		t.Errorf("a status that stays takes none: %v", err)
	}
	got, err := signer.UpdateStatus(ctx, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Spec.PodName != "p" || got.Labels["a"] != "" || got.Status.CertificateChain != change.Status.CertificateChain {
		t.Errorf("/status writes the status alone: %+v", got)
	}
	got.Status = certificatesv1.PodCertificateRequestStatus{}
	_, err = signer.UpdateStatus(ctx, got, metav1.UpdateOptions{})
	wants(t, err, "status: Invalid value: immutable after PodCertificateRequest is issued, denied, or failed", "the end is the end")
}

func podApply(t *testing.T, config *rest.Config) {
	r := newPodRequest(t, "apply", newKey(t))
	r.APIVersion, r.Kind, r.Status = "certificates.k8s.io/v1", "PodCertificateRequest", ended("Denied")
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := asAnyone(t, config, called("node")).PodCertificateRequests("default").
			Patch(t.Context(), r.Name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Status.Conditions) > 0 || strings.Contains(got.ManagedFields[0].FieldsV1.GetRawString(), `"f:status"`) {
			t.Errorf("apply neither writes nor owns the status: %+v", got)
		}
	}
}

func podTable(t *testing.T, config *rest.Config) {
	ctx, requests := t.Context(), asAnyone(t, config, called("sign")).PodCertificateRequests("default")
	r, err := requests.Create(ctx, newPodRequest(t, "table", newKey(t)), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	path := "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests/table"
	head := []any{"Name", "PodName", "ServiceAccountName", "NodeName", "SignerName", "State", "UnverifiedUserAnnotations"}
	want := [][]any{head, {"table", "p", "s", "n", "example.com/client", "Pending", "Example.com/a=any thing"}}
	if diff := cmp.Diff(want, tableOf(t, config, path)); diff != "" {
		t.Errorf("columns and cells (-want +got):\n%s", diff)
	}
	r.Status = ended("Failed")
	if _, err := requests.UpdateStatus(ctx, r, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	want[1][5] = "Failed"
	if diff := cmp.Diff(want, tableOf(t, config, path)); diff != "" {
		t.Errorf("columns and cells (-want +got):\n%s", diff)
	}
}

func podServed(t *testing.T, config *rest.Config) {
	want := map[string]string{
		"podcertificaterequests":        "podcertificaterequest  true create delete deletecollection get list patch update watch",
		"podcertificaterequests/status": "  true get patch update",
	}
	if diff := cmp.Diff(want, servedBy(t, config, "podcertificaterequests")); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
}

// tableOf is an object as kubectl get prints it: the names of the columns, and
// the cells.
func tableOf(t *testing.T, config *rest.Config, path string) [][]any {
	t.Helper()
	raw, err := asAnyone(t, config, rest.ImpersonationConfig{}).RESTClient().Get().AbsPath(path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got metav1.Table
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	all := [][]any{nil}
	for _, c := range got.ColumnDefinitions {
		all[0] = append(all[0], c.Name)
	}
	for _, row := range got.Rows {
		all = append(all, row.Cells)
	}
	return all
}

// servedBy is what discovery says of a resource and its sub-resources: singular,
// short names, whether it is namespaced, and verbs.
func servedBy(t *testing.T, config *rest.Config, name string) map[string]string {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.Discovery().ServerResourcesForGroupVersion("certificates.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		if plural, _, _ := strings.Cut(r.Name, "/"); plural == name {
			words := []string{r.SingularName, strings.Join(r.ShortNames, ","), strconv.FormatBool(r.Namespaced)}
			got[r.Name] = strings.Join(append(words, r.Verbs...), " ")
		}
	}
	return got
}
