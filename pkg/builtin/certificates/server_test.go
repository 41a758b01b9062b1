package certificates

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	certificatesclient "k8s.io/client-go/kubernetes/typed/certificates/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// rules let everybody do everything, but for a signer only what is named after
// the user: "approve" or "sign" for all of example.com, "one" approves for
// example.com/client alone.
type rules struct{}

func (rules) Install(p *controlplane.Plan) error {
	p.Authorize("rules", authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked := a.GetVerb() + " " + a.GetName()
		switch who := a.GetUser().GetName(); {
		case a.GetResource() != "signers" || a.GetAPIGroup() != "certificates.k8s.io",
			asked == who+" example.com/*",
			who == "one" && asked == "approve example.com/client":
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "no", nil
	}))
	return nil
}

// start runs a server until the test ends.
func start(t *testing.T, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	server, err := controlplane.New("certificates-test").Storage(memory.Store{}).
		With(CertificateSigningRequests{}, rules{}).With(parts...).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("the server is not ready after 30 s")
	}
	return server.ClientConfig()
}

// as is a client for some user, or for the administrator.
func as(t *testing.T, config *rest.Config, who rest.ImpersonationConfig) certificatesclient.CertificateSigningRequestInterface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Impersonate = -1, who
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.CertificatesV1().CertificateSigningRequests()
}

func called(name string) rest.ImpersonationConfig { return rest.ImpersonationConfig{UserName: name} }

// TestRequests runs against one server: each sub-test works in names of its own.
func TestRequests(t *testing.T) {
	t.Parallel()
	config := start(t)
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"Create": createRequest, "Approve": approve, "Deny": deny, "Permissions": permissions,
		"Subject": subject, "Metadata": metadata, "Apply": apply, "Selector": selector, "Table": table, "Discovery": discovery,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, config)
		})
	}
}

// wants compares an error with the text that Kubernetes has for it.
func wants(t *testing.T, err error, want, reason string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want %q", reason, err, want)
	}
}

func mustCreate(t *testing.T, config *rest.Config, r *csr) *csr {
	t.Helper()
	got, err := as(t, config, rest.ImpersonationConfig{}).Create(t.Context(), r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// decided is a request with one more condition.
func decided(r *csr, c certificatesv1.RequestConditionType) *csr {
	r = r.DeepCopy()
	r.Status.Conditions = append(r.Status.Conditions, is(c))
	return r
}

func createRequest(t *testing.T, config *rest.Config) {
	ann := as(t, config, rest.ImpersonationConfig{
		UserName: "ann", UID: "1", Groups: []string{"a"}, Extra: map[string][]string{"b": {"c", "d"}},
	})
	r := decided(newRequest(t, "create any:name", "example.com/client"), "Approved")
	r.Spec.Username, r.Spec.Groups, r.Spec.Extra = "eve", []string{"system:masters"}, map[string]certificatesv1.ExtraValue{"e": {"f"}}
	got, err := ann.Create(t.Context(), r, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := r.Spec
	want.Username, want.UID, want.Groups = "ann", "1", []string{"a", "system:authenticated"}
	want.Extra = map[string]certificatesv1.ExtraValue{"b": {"c", "d"}}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("who asks is who asks (-want +got):\n%s", diff)
	}
	if len(got.Status.Conditions) > 0 || got.Generation != 0 {
		t.Errorf("nothing is decided, and there is no generation: %+v", got)
	}
	got.Spec.SignerName, got.Labels = "example.com/other", map[string]string{"a": "b"}
	again, err := ann.Update(t.Context(), decided(got, "Approved"), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if again.Spec.SignerName != "example.com/client" || len(again.Status.Conditions) > 0 || again.Labels["a"] != "b" {
		t.Errorf("an update changes metadata only: %+v", again)
	}
	r.Spec.Request = []byte("x")
	_, err = ann.Create(t.Context(), r, metav1.CreateOptions{})
	wants(t, err, `CertificateSigningRequest.certificates.k8s.io "create any:name" is invalid: spec.request: Invalid value: `, "no request")
}

func approve(t *testing.T, config *rest.Config) {
	ctx, admin := t.Context(), as(t, config, rest.ImpersonationConfig{})
	r := mustCreate(t, config, newRequest(t, "approve", "example.com/client"))
	if _, err := admin.UpdateStatus(ctx, decided(r, "Approved"), metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("status approves nothing: got %v", err)
	}
	change := decided(r, "Approved")
	change.Status.Certificate = []byte("x")
	r, err := admin.UpdateApproval(ctx, r.Name, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Status.Conditions[0]; c.LastUpdateTime.IsZero() || c.LastTransitionTime.IsZero() || r.Status.Certificate != nil {
		t.Errorf("the server sets the times, and approval keeps the certificate: %+v", r.Status)
	}
	change = r.DeepCopy()
	change.Status.Certificate = inPEM(newAuthority(t, time.Hour).certificate)
	change.Status.Conditions[0].Message = "changed"
	change.Spec.Username = "eve"
	r, err = admin.UpdateStatus(ctx, change, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Status.Certificate) == 0 || r.Status.Conditions[0].Message != "" || r.Spec.Username == "eve" {
		t.Errorf("status takes the certificate and nothing else: %+v", r)
	}
	_, err = admin.Patch(ctx, r.Name, types.MergePatchType, []byte(`{"status":{"certificate":null}}`), metav1.PatchOptions{}, "status")
	wants(t, err, "status.certificate: Forbidden: updates may not modify existing certificate content", "it is immutable")
	_, err = admin.Patch(ctx, r.Name, types.MergePatchType, []byte(`{"status":{"conditions":null}}`), metav1.PatchOptions{}, "approval")
	wants(t, err, `status.conditions: Forbidden: updates may not remove a condition of type "Approved"`, "it stays")
}

func deny(t *testing.T, config *rest.Config) {
	admin := as(t, config, rest.ImpersonationConfig{})
	r := mustCreate(t, config, newRequest(t, "deny", "example.com/client"))
	r, err := admin.UpdateApproval(t.Context(), r.Name, decided(r, "Denied"), metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.UpdateApproval(t.Context(), r.Name, decided(r, "Approved"), metav1.UpdateOptions{})
	wants(t, err, "status.conditions[1].type: Invalid value: \"Approved\": Approved and Denied conditions are mutually exclusive", "no is no")
}

func permissions(t *testing.T, config *rest.Config) {
	mustCreate(t, config, newRequest(t, "permissions", "example.com/client"))
	mustCreate(t, config, newRequest(t, "permissions-other", "example.com/other"))
	const (
		approval    = `{"status":{"conditions":[{"type":"Approved","status":"True"}]}}`
		failure     = `{"status":{"conditions":[{"type":"Approved","status":"True"},{"type":"Failed","status":"True"}]}}`
		approveWant = `is forbidden: user not permitted to approve requests with signerName "example.com/`
		signWant    = `certificatesigningrequests.certificates.k8s.io "permissions" is forbidden: user not permitted to sign requests with signerName "example.com/client"`
	)
	for i, step := range []struct{ who, name, subresource, patch, want, reason string }{
		{"nobody", "permissions", "approval", approval, approveWant + `client"`, "approval takes a permission"},
		{"sign", "permissions", "approval", approval, approveWant + `client"`, "signing is another one"},
		{"one", "permissions-other", "approval", approval, approveWant + `other"`, "this one is for another signer"},
		{"one", "permissions", "approval", approval, "", "this one is for the signer"},
		{"approve", "permissions-other", "approval", approval, "", "this one is for the whole domain"},
		{"approve", "permissions", "status", failure, signWant, "approval is another one"},
		{"approve", "permissions", "status", `{"metadata":{"labels":{"a":"b"}}}`, "", "metadata takes no permission there"},
		{"sign", "permissions", "status", failure, "", "this one signs"},
	} {
		_, err := as(t, config, called(step.who)).Patch(t.Context(), step.name, types.MergePatchType, []byte(step.patch), metav1.PatchOptions{}, step.subresource)
		if step.want != "" {
			wants(t, err, step.want, step.reason)
		} else if err != nil {
			t.Errorf("step %d: %s: %v", i, step.reason, err)
		}
	}
}

func subject(t *testing.T, config *rest.Config) {
	admin := as(t, config, rest.ImpersonationConfig{})
	_, err := admin.Create(t.Context(), newRequest(t, "masters", certificatesv1.KubeAPIServerClientSignerName, "a", "system:masters"), metav1.CreateOptions{})
	wants(t, err, `certificatesigningrequests.certificates.k8s.io "masters" is forbidden: use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed`, "nobody asks for everything")
	mustCreate(t, config, newRequest(t, "masters-elsewhere", "example.com/client", "system:masters"))
	mustCreate(t, config, newRequest(t, "not-masters", certificatesv1.KubeAPIServerClientSignerName, "a"))
}

// metadata: the sub-resources take it too, and conditions of other types, as
// the conformance tests of Kubernetes do.
func metadata(t *testing.T, config *rest.Config) {
	mustCreate(t, config, newRequest(t, "metadata", "example.com/client"))
	for _, sub := range []string{"approval", "status"} {
		got, err := as(t, config, rest.ImpersonationConfig{}).Patch(t.Context(), "metadata", types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"`+sub+`":"true"}},"status":{"conditions":[{"type":"Patched`+sub+`","status":"True","reason":"e2e"}]}}`), metav1.PatchOptions{}, sub)
		if err != nil {
			t.Fatal(err)
		}
		if got.Annotations[sub] != "true" || len(got.Status.Conditions) != 1 {
			t.Errorf("%s: %+v", sub, got)
		}
	}
}

func apply(t *testing.T, config *rest.Config) {
	r := newRequest(t, "apply", "example.com/client")
	r.APIVersion, r.Kind = "certificates.k8s.io/v1", "CertificateSigningRequest"
	raw, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := as(t, config, called("ann")).Patch(t.Context(), r.Name, types.ApplyPatchType, raw, metav1.PatchOptions{FieldManager: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if got.Spec.Username != "ann" || got.Spec.SignerName != r.Spec.SignerName || len(got.Spec.Usages) != 2 {
			t.Errorf("apply creates, and changes nothing after: %+v", got.Spec)
		}
	}
}

func selector(t *testing.T, config *rest.Config) {
	mustCreate(t, config, newRequest(t, "selector", "selector.example.com/a"))
	list, err := as(t, config, rest.ImpersonationConfig{}).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.signerName=selector.example.com/a"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "selector" {
		t.Errorf("requests are selected by signer: %v, %v", list, err)
	}
}

func table(t *testing.T, config *rest.Config) {
	r := newRequest(t, "table", "example.com/client")
	r.Spec.ExpirationSeconds = ptr.To[int32](86400)
	mustCreate(t, config, r)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := client.CertificatesV1().RESTClient().Get().AbsPath("/apis/certificates.k8s.io/v1/certificatesigningrequests/table").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got metav1.Table
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range got.ColumnDefinitions {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"Name", "Age", "SignerName", "Requestor", "RequestedDuration", "Condition"}, names); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"example.com/client", "system:apiserver", "24h", "Pending"}, got.Rows[0].Cells[2:]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func discovery(t *testing.T, config *rest.Config) {
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
		got[r.Name] = strings.Join(append([]string{r.SingularName, strings.Join(r.ShortNames, ",")}, r.Verbs...), " ")
		if r.Namespaced {
			t.Errorf("%s is not in a namespace", r.Name)
		}
	}
	want := map[string]string{
		"certificatesigningrequests":          "certificatesigningrequest csr create delete deletecollection get list patch update watch",
		"certificatesigningrequests/approval": "  get patch update",
		"certificatesigningrequests/status":   "  get patch update",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
}
