package extend_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	builtinrbac "github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/extend"
	"github.com/sailplane-dev/sailplane/pkg/extend/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

const (
	// patience is how long a test waits for what comes by itself.
	patience = 2 * time.Minute
	poll     = 20 * time.Millisecond
)

// host is a server that others extend, and what its administrator uses.
type host struct {
	*controlplane.Server
	admin authn.Admin
	dir   string
	kube  kubernetes.Interface
}

// serve runs a server until the test ends.
func serve(t *testing.T, name string, parts ...controlplane.Part) *controlplane.Server {
	t.Helper()
	s, err := controlplane.New(name).Listen("127.0.0.1:0").Storage(memory.Store{}).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("Run: %v", err)
	}
	return s
}

// newHost runs a host with further parts.
func newHost(t *testing.T, parts ...controlplane.Part) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{dir: dir, admin: authn.Admin{Dir: filepath.Join(dir, "pki"), Kubeconfig: filepath.Join(dir, "admin.kubeconfig")}}
	h.Server = serve(t, "host", append(controlplane.Parts{
		h.admin, authz.RBAC{}, builtinrbac.All(), preset.Standard(), serviceaccount.Tokens{},
	}, parts...)...)
	var err error
	if h.kube, err = kubernetes.NewForConfig(h.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return h
}

// kubeconfig is a file for the user extension, who has the rights that a Host needs.
func (h *host) kubeconfig(t *testing.T) string {
	t.Helper()
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "extension"}}
	bind := metav1.ObjectMeta{Name: "extension"}
	delegates := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:auth-delegator"}
	reads := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "extension-apiserver-authentication-reader"}
	_, err1 := h.kube.RbacV1().ClusterRoleBindings().Create(t.Context(),
		&rbacv1.ClusterRoleBinding{ObjectMeta: bind, Subjects: subject, RoleRef: delegates}, metav1.CreateOptions{})
	_, err2 := h.kube.RbacV1().RoleBindings("kube-system").Create(t.Context(),
		&rbacv1.RoleBinding{ObjectMeta: bind, Subjects: subject, RoleRef: reads}, metav1.CreateOptions{})
	content, _, err3 := h.admin.Issue(authn.Login{User: "extension"})
	file := filepath.Join(h.dir, "extension.kubeconfig")
	err4 := os.WriteFile(file, content, 0o600)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return file
}

// extended runs a server of apples that extends the host, and has the host hand requests on.
func (h *host) extended(t *testing.T) *controlplane.Server {
	t.Helper()
	behind := serve(t, "behind",
		extend.Host{Kubeconfig: h.kubeconfig(t)}, authn.Admin{Dir: t.TempDir()},
		apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples")))
	client, err := aggregatorclient.NewForConfig(h.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	gv := fruit.GroupVersion()
	_, err = client.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{
			Name:        gv.Version + "." + gv.Group,
			Annotations: map[string]string{aggregator.URLAnnotation: "https://" + behind.Address().String()},
		},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: gv.Group, Version: gv.Version, GroupPriorityMinimum: 500, VersionPriority: 10,
			Service:  &apiregistrationv1.ServiceReference{Namespace: "elsewhere", Name: "fruit"},
			CABundle: behind.Authority().CurrentCABundleContent(),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return behind
}

func (h *host) namespace(t *testing.T, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := h.kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// limit gives a namespace a quota of apples, and waits until it counts.
func (h *host) limit(t *testing.T, namespace, most string) {
	t.Helper()
	apples := corev1.ResourceName("count/apples." + fruit.GroupVersion().Group)
	quotas := h.kube.CoreV1().ResourceQuotas(namespace)
	_, err := quotas.Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "few"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{apples: resource.MustParse(most)}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the quota counts", func() bool {
		q, err := quotas.Get(t.Context(), "few", metav1.GetOptions{})
		_, counted := q.Status.Used[apples]
		return err == nil && counted
	})
}

// allow lets a user do everything with apples.
func (h *host) allow(t *testing.T, user string) {
	t.Helper()
	h.grant(t, user, rbacv1.PolicyRule{APIGroups: []string{fruit.GroupVersion().Group}, Resources: []string{"apples"}, Verbs: []string{"*"}})
}

func (h *host) grant(t *testing.T, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	name := metav1.ObjectMeta{Name: "granted-to-" + strings.ReplaceAll(user, ":", "-")}
	_, err1 := h.kube.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: name, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	_, err2 := h.kube.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: name, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name.Name},
	}, metav1.CreateOptions{})
	for _, err := range []error{err1, err2} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(poll) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", patience, what)
		}
	}
}

func as(config *rest.Config, user string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// apples is a client of a server's apples.
func apples(t *testing.T, config *rest.Config, namespace string) dynamic.ResourceInterface {
	t.Helper()
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(fruit.GroupVersion().WithResource("apples")).Namespace(namespace)
}

func apple(name string) *unstructured.Unstructured {
	a := &unstructured.Unstructured{}
	a.SetGroupVersionKind(fruit.GroupVersion().WithKind("Apple"))
	a.SetName(name)
	return a
}

func grow(t *testing.T, at dynamic.ResourceInterface, name string) error {
	t.Helper()
	_, err := at.Create(t.Context(), apple(name), metav1.CreateOptions{})
	return err
}

// TestHost: who somebody is, what they may do, namespaces and quotas are the host's, through
// it and directly.
func TestHost(t *testing.T) {
	t.Parallel()
	h := newHost(t, aggregator.APIServices{}, extend.CreateReviews{})
	behind := h.extended(t)
	h.namespace(t, "shop")
	h.allow(t, "bob")
	h.limit(t, "shop", "2")

	bobs := apples(t, as(h.ClientConfig(), "bob"), "shop")
	until(t, "the host hands requests on", func() bool {
		_, err := bobs.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	if err := grow(t, bobs, "one"); err != nil {
		t.Errorf("a create with the right to: %v", err)
	}
	if err := grow(t, apples(t, as(h.ClientConfig(), "eve"), "shop"), "hers"); !apierrors.IsForbidden(err) {
		t.Errorf("a create without the right to: %v, want Forbidden", err)
	}
	if err := grow(t, apples(t, as(h.ClientConfig(), "bob"), "nowhere"), "lost"); !apierrors.IsNotFound(err) {
		t.Errorf("a create in a namespace that the host does not have: %v, want NotFound", err)
	}
	t.Run("tokens", func(t *testing.T) { directly(t, h, behind) })
	t.Run("certificates", func(t *testing.T) {
		if _, err := apples(t, trusting(t, h.issued(t, behind), behind), "shop").Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
			t.Errorf("bob, directly, by a certificate of the host's: %v", err)
		}
	})
	for _, client := range []dynamic.ResourceInterface{bobs, apples(t, trusting(t, h.issued(t, behind), behind), "shop")} {
		if err := grow(t, client, "three"); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota: few") {
			t.Errorf("a create beyond the quota: %v, want Forbidden", err)
		}
	}
	if err := h.kube.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the namespace is gone with its apples", func() bool {
		_, err := h.kube.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	if list, err := apples(t, behind.ClientConfig(), "").List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) > 0 {
		t.Errorf("%d apples are left, %v", len(list.Items), err)
	}
}

// issued is a kubeconfig of bob for the server behind.
func (h *host) issued(t *testing.T, behind *controlplane.Server) []byte {
	t.Helper()
	content, _, err := h.admin.Issue(authn.Login{User: "bob", Server: "https://" + behind.Address().String()})
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// trusting is the configuration of a kubeconfig of the host's, for a client of the server
// behind, which has a certificate of its own authority.
func trusting(t *testing.T, kubeconfig []byte, behind *controlplane.Server) *rest.Config {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.TLSClientConfig.CAData = behind.Authority().CurrentCABundleContent()
	return config
}

// directly: a token of the host's is good at the server behind, with the rights that the host
// gives its account, and another is not.
func directly(t *testing.T, h *host, behind *controlplane.Server) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "picker"}}
	if _, err := h.kube.CoreV1().ServiceAccounts("shop").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := h.kube.CoreV1().ServiceAccounts("shop").CreateToken(t.Context(), "picker", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := &rest.Config{
		Host: "https://" + behind.Address().String(), BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: behind.Authority().CurrentCABundleContent()},
	}
	if err := grow(t, apples(t, config, "shop"), "two"); !apierrors.IsForbidden(err) {
		t.Errorf("without rights: %v, want Forbidden", err)
	}
	h.allow(t, "system:serviceaccount:shop:picker")
	until(t, "the rights reach the server behind", func() bool { return grow(t, apples(t, config, "shop"), "two") == nil })
	config.WrapTransport = func(way http.RoundTripper) http.RoundTripper { return pretender{way} }
	config.BearerToken = "made up"
	if err := grow(t, apples(t, config, "shop"), "four"); !apierrors.IsUnauthorized(err) {
		t.Errorf("with a token of nobody's: %v, want Unauthorized", err)
	}
	config.BearerToken = ""
	if err := grow(t, apples(t, config, "shop"), "four"); !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
		t.Errorf("with a proxy's headers, and no certificate: %v, want Unauthorized", err)
	}
}

// pretender says what only the host's proxy may.
type pretender struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p pretender) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Remote-User", "root")
	r.Header.Set("X-Remote-Group", "system:masters")
	return p.RoundTripper.RoundTrip(r)
}

// TestOldHost: a host that knows no CreateReviews is asked for the namespace.
func TestOldHost(t *testing.T) {
	t.Parallel()
	h := newHost(t, aggregator.APIServices{})
	behind := h.extended(t)
	h.allow(t, "bob")
	config := trusting(t, h.issued(t, behind), behind)
	if err := grow(t, apples(t, config, "default"), "one"); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("when the host does not show namespaces: %v, want ServiceUnavailable", err)
	}
	h.grant(t, "extension", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})
	until(t, "namespaces are seen", func() bool { return grow(t, apples(t, config, "default"), "one") == nil })
	if err := grow(t, apples(t, config, "nowhere"), "one"); !apierrors.IsNotFound(err) {
		t.Errorf("a create in a namespace that the host does not have: %v, want NotFound", err)
	}
	h.namespace(t, "going")
	held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/held"}}}
	if _, err := h.kube.CoreV1().ConfigMaps("going").Create(t.Context(), held, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := h.kube.CoreV1().Namespaces().Delete(t.Context(), "going", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := grow(t, apples(t, config, "going"), "one"); !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("a create in a namespace that is being deleted: %v", err)
	}
}

// TestCreateReviews: the answer is what the user would be told.
func TestCreateReviews(t *testing.T) {
	t.Parallel()
	h := newHost(t, extend.CreateReviews{})
	h.namespace(t, "shop")
	h.allow(t, "bob")
	h.limit(t, "shop", "1")
	gv := fruit.GroupVersion()
	bob := func(change func(*v1alpha1.CreateReviewSpec)) v1alpha1.CreateReviewSpec {
		s := v1alpha1.CreateReviewSpec{User: "bob", Group: gv.Group, Version: gv.Version, Resource: "apples", Namespace: "shop"}
		change(&s)
		return s
	}
	for _, c := range []struct {
		reason string
		spec   v1alpha1.CreateReviewSpec
		want   string // empty: allowed
		fails  metav1.StatusReason
	}{
		{reason: "who asks for nobody asks nothing", spec: bob(func(s *v1alpha1.CreateReviewSpec) { s.User = "" }), fails: metav1.StatusReasonInvalid},
		{reason: "a review has a resource", spec: bob(func(s *v1alpha1.CreateReviewSpec) { s.Resource = "" }), fails: metav1.StatusReasonInvalid},
		{reason: "what is dry reserves nothing", spec: bob(func(s *v1alpha1.CreateReviewSpec) { s.DryRun = true })},
		{reason: "there is room for one", spec: bob(func(*v1alpha1.CreateReviewSpec) {})},
		{reason: "which was reserved", spec: bob(func(*v1alpha1.CreateReviewSpec) {}), want: "exceeded quota: few"},
		{reason: "rights come first", spec: bob(func(s *v1alpha1.CreateReviewSpec) { s.User = "eve" }), want: `apples.` + gv.Group + ` is forbidden`},
		{reason: "a namespace exists", spec: bob(func(s *v1alpha1.CreateReviewSpec) { s.Namespace = "nowhere" }), want: `namespaces "nowhere" not found`},
		{reason: "rights of groups count", spec: v1alpha1.CreateReviewSpec{Groups: []string{"system:masters"}, Version: "v1", Resource: "nodes"}},
	} {
		got := &v1alpha1.CreateReview{}
		content, err := json.Marshal(&v1alpha1.CreateReview{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion().String(), Kind: "CreateReview"}, Spec: c.spec,
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := h.kube.CoreV1().RESTClient().Post().AbsPath("/apis/policy.sailplane.dev/v1alpha1/createreviews").
			SetHeader("Content-Type", "application/json").Body(content).Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(answer, got)
		}
		switch {
		case c.fails != "":
			if apierrors.ReasonForError(err) != c.fails {
				t.Errorf("%s: %v, want %s", c.reason, err, c.fails)
			}
		case err != nil:
			t.Errorf("%s: %v", c.reason, err)
		case got.Status.Allowed != (c.want == ""):
			t.Errorf("%s: %+v", c.reason, got.Status)
		case c.want != "" && !strings.Contains(got.Status.Error.Message, c.want):
			t.Errorf("%s: %q, want %q", c.reason, got.Status.Error.Message, c.want)
		}
	}
	err := h.kube.CoreV1().RESTClient().Get().AbsPath("/apis/policy.sailplane.dev/v1alpha1/createreviews").Do(t.Context()).Error()
	if apierrors.ReasonForError(err) != metav1.StatusReasonMethodNotAllowed {
		t.Errorf("reviews are listed: %v, want %d", err, http.StatusMethodNotAllowed)
	}
}

// TestBuild: what is wrong with a kubeconfig is said before anything starts.
func TestBuild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open, wrong := filepath.Join(dir, "open"), filepath.Join(dir, "wrong")
	for file, mode := range map[string]os.FileMode{open: 0o644, wrong: 0o600} {
		if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Config\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]string{
		"": "field Kubeconfig: is empty", open: "chmod 0600", wrong: "field Kubeconfig: " + wrong, filepath.Join(dir, "none"): "no such file",
	} {
		_, err := controlplane.New("behind").Storage(memory.Store{}).With(extend.Host{Kubeconfig: file}).Build()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with %q Build says %v, want %q", file, err, want)
		}
	}
}
