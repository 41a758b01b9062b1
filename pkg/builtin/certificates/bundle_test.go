package certificates

import (
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
)

// newBundle is a bundle with one authority.
func newBundle(t *testing.T, name, signer string) *bundle {
	t.Helper()
	b := &bundle{ObjectMeta: metav1.ObjectMeta{Name: name}}
	b.Spec.SignerName, b.Spec.TrustBundle = signer, string(inPEM(newAuthority(t, time.Hour).certificate))
	return b
}

func TestValidateBundle(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, name, generate, signer, want string }{
		"nobody's":   {reason: "a bundle may have no signer", name: "a.b"},
		"a signer's": {reason: "a signer's name comes first", name: "example.com:client:v1", signer: "example.com/client"},
		"generated":  {reason: "a beginning will do", name: "example.com:client:v1", generate: "example.com:client:v", signer: "example.com/client"},
		"colon": {
			reason: "it looks like a signer's", name: "example.com:client:v1",
			want: `metadata.name: FieldValueInvalid: ClusterTrustBundle without signer name must not have ":" in its name`,
		},
		"no prefix": {
			reason: "it belongs to a signer", name: "a", signer: "example.com/client",
			want: "metadata.name: FieldValueInvalid: ClusterTrustBundle for signerName example.com/client must be named with prefix example.com:client:",
		},
		"generated without": {
			reason: "so does what is generated", name: "example.com:client:a", generate: "a", signer: "example.com/client",
			want: "metadata.generateName: FieldValueInvalid: ClusterTrustBundle for signerName example.com/client must be named with prefix example.com:client:",
		},
		"no domain": {
			reason: "a signer has a domain", name: "client:a", signer: "client",
			want: "spec.signerName: FieldValueInvalid: must be a fully qualified domain and path of the form 'example.com/signer-name'",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBundle(t, tc.name, tc.signer)
			b.GenerateName = tc.generate
			if diff := cmp.Diff(tc.want, text(validateBundle(b))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
	if got := text(validateBundle(newBundle(t, "example.com:client:", "example.com/client"))); !strings.HasPrefix(got, "metadata.name: FieldValueInvalid") {
		t.Errorf("a signer's name is not enough: got %s", got)
	}
}

func TestValidateTrust(t *testing.T) {
	t.Parallel()
	first, second := string(inPEM(newAuthority(t, time.Hour).certificate)), string(inPEM(newAuthority(t, time.Hour).certificate))
	block := func(kind string, headers map[string]string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Headers: headers, Bytes: []byte("x")}))
	}
	const at = "spec.trustBundle: FieldValueInvalid: "
	cases := map[string]struct{ reason, trust, want string }{
		"two":     {"many may be trusted, and text is for people", "# first\n" + first + "# second\n" + second, ""},
		"none":    {"a bundle trusts somebody", "nobody", at + "at least one trust anchor must be provided"},
		"twice":   {"each counts once", first + second + first, at + "duplicate trust anchor (indices [0 2])"},
		"key":     {"a key has no business there", first + block("PRIVATE KEY", nil), at + "entry 1 has bad block type: PRIVATE KEY"},
		"headers": {"RFC 7468 has none", block("CERTIFICATE", map[string]string{"a": "b"}), at + "entry 0 has PEM block headers"},
		"x":       {"it is a certificate", block("CERTIFICATE", nil) + first, at + "entry 0 does not parse as X.509"},
		"leaf":    {"only authorities are trusted", string(leafFor(t, newKey(t), time.Now(), time.Hour)), at + "entry 0 does not have the CA bit set"},
		"big":     {"a bundle is in memory everywhere", strings.Repeat(" ", 1024*1024+1), "spec.trustBundle: FieldValueTooLong: may not be more than 1048576 bytes"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{}
			b.Spec.TrustBundle = tc.trust
			if diff := cmp.Diff(tc.want, text(validateTrust(b))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// asAnyone is a client of the whole group for some user.
func asAnyone(t *testing.T, config *rest.Config, who rest.ImpersonationConfig) certificatesclient.CertificatesV1Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Impersonate = -1, who
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.CertificatesV1()
}

// TestBundles runs against one server: each sub-test works in names of its own.
func TestBundles(t *testing.T) {
	t.Parallel()
	config := start(t, ClusterTrustBundles{})
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"Life": bundleLife, "Attest": attest, "Table": bundleTable, "Served": bundleServed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, config)
		})
	}
}

func bundleLife(t *testing.T, config *rest.Config) {
	ctx, bundles := t.Context(), asAnyone(t, config, called("attest")).ClusterTrustBundles()
	b, err := bundles.Create(ctx, newBundle(t, "example.com:life:a", "example.com/life"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b.Generation != 0 {
		t.Errorf("bundles have no generation: %+v", b)
	}
	_, err = bundles.Create(ctx, newBundle(t, "life", "example.com/life"), metav1.CreateOptions{})
	wants(t, err, "metadata.name: Invalid value", "its name begins with that of the signer")
	for _, list := range []struct {
		selector string
		want     int
	}{{"example.com/life", 1}, {"example.com/other", 0}} {
		got, err := bundles.List(ctx, metav1.ListOptions{FieldSelector: "spec.signerName=" + list.selector})
		if err != nil || len(got.Items) != list.want {
			t.Errorf("bundles are selected by signer: got %v, %v", got, err)
		}
	}
	other := b.DeepCopy()
	other.Spec.SignerName = "example.com/other"
	_, err = bundles.Update(ctx, other, metav1.UpdateOptions{})
	wants(t, err, "spec.signerName: Invalid value: \"example.com/other\": field is immutable", "a bundle stays its signer's")
	other = b.DeepCopy()
	other.Spec.TrustBundle = "nobody"
	_, err = bundles.Update(ctx, other, metav1.UpdateOptions{})
	wants(t, err, "spec.trustBundle: Invalid value", "a bundle still trusts somebody")
	b.Spec.TrustBundle += newBundle(t, "", "").Spec.TrustBundle
	if _, err := bundles.Update(ctx, b, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
}

func attest(t *testing.T, config *rest.Config) {
	ctx, nobody := t.Context(), asAnyone(t, config, called("nobody")).ClusterTrustBundles()
	if _, err := nobody.Create(ctx, newBundle(t, "attest", ""), metav1.CreateOptions{}); err != nil {
		t.Errorf("without a signer it takes no permission: %v", err)
	}
	b := newBundle(t, "example.com:attest:a", "example.com/attest")
	const want = `clustertrustbundles.certificates.k8s.io "example.com:attest:a" is forbidden: user not permitted to attest for signerName "example.com/attest"`
	_, err := nobody.Create(ctx, b, metav1.CreateOptions{})
	wants(t, err, want, "creating takes a permission")
	_, err = asAnyone(t, config, called("sign")).ClusterTrustBundles().Create(ctx, b, metav1.CreateOptions{})
	wants(t, err, want, "signing is another one")
	if _, err := asAnyone(t, config, called("attest")).ClusterTrustBundles().Create(ctx, b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ reason, patch, want string }{
		{"so does changing", `{"metadata":{"labels":{"a":"b"}}}`, want},
		{"a garbage collector needs none", `{"metadata":{"finalizers":["example.com/f"],"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"u"}]}}`, ""},
		{"changing nothing neither", `{}`, ""},
	} {
		_, err := nobody.Patch(ctx, b.Name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{})
		if step.want != "" {
			wants(t, err, step.want, step.reason)
		} else if err != nil {
			t.Errorf("%s: %v", step.reason, err)
		}
	}
}

func bundleTable(t *testing.T, config *rest.Config) {
	bundles := asAnyone(t, config, called("attest")).ClusterTrustBundles()
	for _, b := range []*bundle{newBundle(t, "table", ""), newBundle(t, "example.com:table:a", "example.com/table")} {
		if _, err := bundles.Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		want := [][]any{{"Name", "SignerName"}, {b.Name, orNone(b.Spec.SignerName)}}
		if diff := cmp.Diff(want, tableOf(t, config, "/apis/certificates.k8s.io/v1/clustertrustbundles/"+b.Name)); diff != "" {
			t.Errorf("columns and cells (-want +got):\n%s", diff)
		}
	}
}

func bundleServed(t *testing.T, config *rest.Config) {
	want := map[string]string{"clustertrustbundles": "clustertrustbundle  false create delete deletecollection get list patch update watch"}
	if diff := cmp.Diff(want, servedBy(t, config, "clustertrustbundles")); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
}
