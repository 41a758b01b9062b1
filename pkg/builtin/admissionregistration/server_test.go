package admissionregistration

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// rules let everybody write the group, and "reader" read the ConfigMap
// default/one, all ConfigMaps only as long as its name is "all".
type rules struct{}

func (rules) Install(p *controlplane.Plan) error {
	p.Authorize("rules", authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		who, what := a.GetUser().GetName(), a.GetVerb()+" "+a.GetResource()+" "+a.GetNamespace()+"/"+a.GetName()
		if a.GetAPIGroup() == admissionv1.GroupName || who == "all" || who == "reader" && what == "get configmaps default/one" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "no", nil
	}))
	return nil
}

// start runs a server until the test ends.
func start(t *testing.T, more ...controlplane.Part) *rest.Config {
	t.Helper()
	server, err := controlplane.New("registration-test").Storage(memory.Store{}).With(
		ValidatingWebhookConfigurations{}, MutatingWebhookConfigurations{}, ValidatingAdmissionPolicies{},
		ValidatingAdmissionPolicyBindings{}, MutatingAdmissionPolicies{}, MutatingAdmissionPolicyBindings{},
		core.ConfigMaps{}, rules{}).With(more...).Build()
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

// as is a client for a user, or for the administrator.
func as(t *testing.T, config *rest.Config, user string) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.QPS, config.Impersonate.UserName = -1, user
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestServer runs against one server: each sub-test works in names of its own.
func TestServer(t *testing.T) {
	t.Parallel()
	config := start(t)
	for name, test := range map[string]func(*testing.T, *rest.Config){
		"Policy": servePolicy, "Status": serveStatus, "Webhooks": serveWebhooks, "Permission": permissions, "Table": table,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, config)
		})
	}
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// TestPolicyStatus checks expressions against the schema of ConfigMaps.
func TestPolicyStatus(t *testing.T) {
	t.Parallel()
	policies := as(t, start(t, PolicyStatus{}), "").AdmissionregistrationV1().ValidatingAdmissionPolicies()
	p := goodPolicy()
	p.Spec.Validations = append(p.Spec.Validations, admissionv1.Validation{Expression: "object.spec.replicas > 1"})
	p, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	checked := func() []admissionv1.ExpressionWarning {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			p, err = policies.Get(ctx, p.Name, metav1.GetOptions{})
			return err == nil && p.Status.ObservedGeneration == p.Generation, err
		})
		switch {
		case err != nil:
			t.Fatalf("not checked: %v", err)
		case p.Status.TypeChecking == nil:
			return nil
		}
		return p.Status.TypeChecking.ExpressionWarnings
	}
	warnings := checked()
	if len(warnings) != 1 || warnings[0].FieldRef != "spec.validations[1].expression" || !strings.Contains(warnings[0].Warning, "undefined field 'spec'") {
		t.Errorf("ConfigMaps have no spec: %v", warnings)
	}
	p.Spec.Validations = p.Spec.Validations[:1]
	if p, err = policies.Update(t.Context(), p, metav1.UpdateOptions{}); err != nil || p.Generation != 2 {
		t.Fatalf("got %v, %v", p, err)
	}
	if warnings := checked(); len(warnings) > 0 {
		t.Errorf("the rest is good: %v", warnings)
	}
}

// servePolicy checks defaults, generation and what an update needs.
func servePolicy(t *testing.T, config *rest.Config) {
	policies := as(t, config, "").AdmissionregistrationV1().ValidatingAdmissionPolicies()
	p := goodPolicy()
	p.Name = "served"
	p.Status.ObservedGeneration = 7
	got, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	want := goodPolicy().Spec
	want.FailurePolicy, want.MatchConstraints.MatchPolicy = ptr.To(admissionv1.Fail), ptr.To(admissionv1.Equivalent)
	want.MatchConstraints.NamespaceSelector, want.MatchConstraints.ObjectSelector = &metav1.LabelSelector{}, &metav1.LabelSelector{}
	want.MatchConstraints.ResourceRules[0].Scope = ptr.To(admissionv1.AllScopes)
	if diff := cmp.Diff(want, got.Spec); diff != "" || got.Generation != 1 || got.Status.ObservedGeneration != 0 {
		t.Errorf("defaults, generation %d and status %v: -want +got:\n%s", got.Generation, got.Status, diff)
	}
	got.Labels = map[string]string{"a": "b"}
	if got, err = policies.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil || got.Generation != 1 {
		t.Errorf("metadata is not counted: %v, %v", got, err)
	}
	got.Spec.Validations[0].Message = "no"
	if got, err = policies.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil || got.Generation != 2 {
		t.Errorf("the spec is counted: %v, %v", got, err)
	}
	got.ResourceVersion = ""
	if _, err = policies.Update(t.Context(), got, metav1.UpdateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an update needs the resourceVersion it replaces: %v", err)
	}
	p.Name, p.Spec.Validations[0].Expression = "bad", "nothing.here"
	if _, err = policies.Create(t.Context(), p, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		!strings.Contains(err.Error(), "undeclared reference to 'nothing'") {
		t.Errorf("expressions compile: %v", err)
	}
}

func serveStatus(t *testing.T, config *rest.Config) {
	policies := as(t, config, "").AdmissionregistrationV1().ValidatingAdmissionPolicies()
	p := goodPolicy()
	p.Name = "with-status"
	p, err := policies.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Validations = nil
	p.Status = admissionv1.ValidatingAdmissionPolicyStatus{
		ObservedGeneration: 1,
		TypeChecking: &admissionv1.TypeChecking{ExpressionWarnings: []admissionv1.ExpressionWarning{
			{FieldRef: "spec.validations[0].expression", Warning: "odd"},
		}},
	}
	got, err := policies.UpdateStatus(t.Context(), p, metav1.UpdateOptions{})
	if err != nil || got.Status.TypeChecking == nil || len(got.Spec.Validations) != 1 || got.Generation != 1 {
		t.Fatalf("only the status is written: %v, %v", got, err)
	}
	got.Status.TypeChecking.ExpressionWarnings[0].FieldRef = "spec.["
	got.Status.Conditions = []metav1.Condition{{Type: "A"}}
	_, err = policies.UpdateStatus(t.Context(), got, metav1.UpdateOptions{})
	for _, want := range []string{"status.typeChecking.expressionWarnings[0].fieldRef", "status.conditions[0].status"} {
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("the status is validated: want %s in %v", want, err)
		}
	}
}

func serveWebhooks(t *testing.T, config *rest.Config) {
	webhooks := as(t, config, "").AdmissionregistrationV1().MutatingWebhookConfigurations()
	c := goodWebhooks()
	c.Name = "served"
	got, err := webhooks.Create(t.Context(), c, metav1.CreateOptions{})
	if err != nil || got.Generation != 1 || got.Webhooks[0].TimeoutSeconds == nil {
		t.Fatalf("got %v, %v", got, err)
	}
	got.Webhooks[0].TimeoutSeconds = ptr.To[int32](3)
	if got, err = webhooks.Update(t.Context(), got, metav1.UpdateOptions{}); err != nil || got.Generation != 2 {
		t.Errorf("a change is counted: %v, %v", got, err)
	}
	c.Name, c.Webhooks[0].SideEffects = "bad", nil
	if _, err := webhooks.Create(t.Context(), c, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("a bad one is refused: %v", err)
	}
	static := goodWebhooks()
	static.Name = "mine.static.k8s.io"
	if _, err := webhooks.Create(t.Context(), static, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "reserved") {
		t.Errorf("a name of those that are read from files ends in %v, want that it is reserved", err)
	}
}

// permissions checks that nobody reads parameters through a policy who may not
// read them without.
func permissions(t *testing.T, config *rest.Config) {
	kind := &admissionv1.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
	policy := func(user, name string) error {
		p := goodPolicy()
		p.Name, p.Spec.ParamKind = name, kind
		_, err := as(t, config, user).AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), p, metav1.CreateOptions{})
		return err
	}
	binding := func(user, name, namespace string) error {
		ref := reference()
		ref.Namespace = namespace
		_, err := as(t, config, user).AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(),
			&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: named(name), Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "allowed", ParamRef: ref, ValidationActions: []admissionv1.ValidationAction{admissionv1.Audit},
			}}, metav1.CreateOptions{})
		return err
	}
	update := func(user string, change func(*admissionv1.ValidatingAdmissionPolicy)) error {
		policies := as(t, config, user).AdmissionregistrationV1().ValidatingAdmissionPolicies()
		p, err := policies.Get(t.Context(), "allowed", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(p)
		_, err = policies.Update(t.Context(), p, metav1.UpdateOptions{})
		return err
	}
	cases := []struct {
		reason string
		err    error
		want   string
	}{
		{"who reads all may name the kind", policy("all", "allowed"), ""},
		{"the administrator may", policy("", "admin"), ""},
		{"others may not", policy("reader", "denied"), `must have "get" permission on all objects of the referenced paramKind (kind=ConfigMap, apiVersion=v1)`},
		{"who reads one object may name it", binding("reader", "allowed", "default"), ""},
		{"not in another namespace", binding("reader", "other", "other"), `does not have "get" permission on the object referenced by paramRef`},
		{"nor in all", binding("reader", "every", ""), `does not have "get" permission on the object referenced by paramRef`},
		{"what stays is not asked about", update("reader", func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.Validations[0].Message = "no"
		}), ""},
		{"another kind is", update("reader", func(p *admissionv1.ValidatingAdmissionPolicy) {
			p.Spec.ParamKind = &admissionv1.ParamKind{APIVersion: "v1", Kind: "Secret"}
		}), `must have "get" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`},
	}
	for _, c := range cases {
		if c.want == "" && c.err != nil || c.want != "" && (!apierrors.IsInvalid(c.err) || !strings.Contains(c.err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.reason, c.err, c.want)
		}
	}
}

// table checks what kubectl get shows.
func table(t *testing.T, config *rest.Config) {
	client := as(t, config, "")
	_, err := client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: named("shown"), Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: "p", ParamRef: reference()},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	columns := map[string]string{
		"validatingwebhookconfigurations": "Name Webhooks Age", "mutatingwebhookconfigurations": "Name Webhooks Age",
		"validatingadmissionpolicies": "Name Validations ParamKind Age", "validatingadmissionpolicybindings": "Name PolicyName ParamRef Age",
		"mutatingadmissionpolicies": "Name Mutations ParamKind Age", "mutatingadmissionpolicybindings": "Name PolicyName ParamRef Age",
	}
	for resource, want := range columns {
		raw, err := client.AdmissionregistrationV1().RESTClient().Get().Resource(resource).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Raw()
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
		if diff := cmp.Diff(want, strings.Join(names, " ")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", resource, diff)
		}
		if resource == "mutatingadmissionpolicybindings" {
			if diff := cmp.Diff([]any{"shown", "p", "*/one"}, got.Rows[0].Cells[:3]); diff != "" {
				t.Errorf("row: -want +got:\n%s", diff)
			}
		}
	}
}
