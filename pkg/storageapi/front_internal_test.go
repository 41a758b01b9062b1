package storageapi

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// fronting is a server that has the destinations of another one, which logs in there as the user lender.
type fronting struct {
	dir, listen string
	kubeconfig  string // of the lender
	core        kubernetes.Interface
	stop        func()
}

// newFront runs a front until the test ends. The lender may not do anything yet but have its authority.
func newFront(t *testing.T) *fronting {
	t.Helper()
	f := &fronting{dir: t.TempDir(), listen: address(t)}
	f.kubeconfig = filepath.Join(f.dir, "lender.kubeconfig")
	admin := f.start(t)
	content, _, err := admin.Issue(authn.Login{User: "lender", Server: "https://" + f.listen})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f.allow(t, "kube-system",
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{
			APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{authoritySecret},
			Verbs: []string{"get", "update"},
		})
	return f
}

// address is one that nobody else takes while a server restarts: kernels choose ports from 32768 on.
func address(t *testing.T) string {
	t.Helper()
	for range 20 {
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(15000+rand.IntN(15000)))
		if l, err := net.Listen("tcp", at); err == nil {
			_ = l.Close()
			return at
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start runs the front where it was before.
func (f *fronting) start(t *testing.T) authn.Admin {
	t.Helper()
	admin := authn.Admin{Dir: filepath.Join(f.dir, "pki"), Kubeconfig: filepath.Join(f.dir, "admin.kubeconfig")}
	server, err := controlplane.New("front").Listen(f.listen).Storage(sqlite.File{Path: filepath.Join(f.dir, "front.db")}).With(
		admin, authz.RBAC{}, rbac.All(), core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	f.stop = run(t, server)
	if f.core, err = kubernetes.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return admin
}

// allow gives the lender rights in a namespace.
func (f *fronting) allow(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) {
	t.Helper()
	at := metav1.ObjectMeta{Namespace: namespace, Name: "lender"}
	_, err1 := f.core.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: at, Rules: rules}, metav1.CreateOptions{})
	_, err2 := f.core.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: at,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "lender"}},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", APIGroup: rbacv1.GroupName, Name: "lender"},
	}, metav1.CreateOptions{})
	for _, err := range []error{err1, err2} {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// borrows lets the lender write to a namespace.
func (f *fronting) borrows(t *testing.T, namespace string) {
	t.Helper()
	f.allow(t, namespace, rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"secrets", "configmaps"},
		Verbs: []string{"get", "list", "watch", "create", "update", "delete"},
	})
}

// lend runs a server with the part only until the test ends, on what is stored in the folder.
func (f *fronting) lend(t *testing.T, dir string) *lender {
	t.Helper()
	server, err := controlplane.New("alone").Listen("127.0.0.1:0").Storage(sqlite.File{Path: filepath.Join(dir, "lent.db")}).With(
		authn.Admin{Dir: filepath.Join(dir, "pki")}, EtcdStorages{Kubeconfig: f.kubeconfig},
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	l := &lender{server: server, core: f.core, stop: run(t, server)}
	if l.lent, err = clientOf(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return l
}

// ask makes an EtcdStorage.
func (l *lender) ask(t *testing.T, s *v1alpha1.EtcdStorage) {
	t.Helper()
	if err := l.lent.Post().Resource("etcdstorages").Body(s).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

// saying waits for the condition of an EtcdStorage with a text in its message.
func (l *lender) saying(t *testing.T, name string, status metav1.ConditionStatus, reason, text string) {
	t.Helper()
	l.follow(t, name, fmt.Sprintf("%s %s with %q", status, reason, text), func(s *v1alpha1.EtcdStorage) bool {
		if s == nil {
			return false
		}
		c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
		return c != nil && c.Status == status && c.Reason == reason && strings.Contains(c.Message, text)
	})
}

// TestFront: a server with the part only writes certificates to another API server, where it has rights in one
// namespace, and notices what happens to them there.
func TestFront(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	l := f.lend(t, t.TempDir())
	l.ask(t, named("a"))
	l.saying(t, "a", metav1.ConditionFalse, v1alpha1.ReasonDestinationFailed, `User "lender" cannot get resource "secrets"`)
	f.borrows(t, "default")
	s := l.until(t, "a", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
	put(t, l.connect(t, s), "key", "value")

	secrets, maps := f.core.CoreV1().Secrets("default"), f.core.CoreV1().ConfigMaps("default")
	old, err := secrets.Get(t.Context(), "a-client", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.Delete(t.Context(), "a-client", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	again(t, "the Secret that was deleted is not there", func() error {
		now, err := secrets.Get(t.Context(), "a-client", metav1.GetOptions{})
		if err == nil && now.UID == old.UID {
			return errors.New("it is the old one")
		}
		return err
	})
	patch := []byte(`{"data":{"ca.crt":"none"}}`)
	if _, err := maps.Patch(t.Context(), "a-ca", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	again(t, "the ConfigMap that was changed is not written again", func() error {
		m, err := maps.Get(t.Context(), "a-ca", metav1.GetOptions{})
		if err == nil && m.Data["ca.crt"] == "none" {
			return errors.New("it has what somebody wrote")
		}
		return err
	})
	if got := keysOf(t, l.connect(t, s)); got["key"] != "value" {
		t.Errorf("with the new certificate: %v", got)
	}

	if err := l.lent.Delete().Resource("etcdstorages").Name("a").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	l.follow(t, "a", "gone", func(s *v1alpha1.EtcdStorage) bool { return s == nil })
	_, err1 := secrets.Get(t.Context(), "a-client", metav1.GetOptions{})
	_, err2 := maps.Get(t.Context(), "a-ca", metav1.GetOptions{})
	for what, err := range map[string]error{"Secret": err1, "ConfigMap": err2} {
		if !apierrors.IsNotFound(err) {
			t.Errorf("the %s of a deleted one: %v, want it deleted", what, err)
		}
	}
}

// TestFrontTaken: a Secret of somebody else stays as it is, also where the lender does not see that it goes.
func TestFrontTaken(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.borrows(t, "default")
	secrets := f.core.CoreV1().Secrets("default")
	mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a-client"}, StringData: map[string]string{"mine": "x"}}
	if _, err := secrets.Create(t.Context(), mine, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	l := f.lend(t, t.TempDir())
	l.ask(t, named("a"))
	l.until(t, "a", metav1.ConditionFalse, v1alpha1.ReasonDestinationTaken)
	if now, err := secrets.Get(t.Context(), "a-client", metav1.GetOptions{}); err != nil || string(now.Data["mine"]) != "x" {
		t.Fatalf("the Secret of somebody else: %v, %v", now, err)
	}
	if err := secrets.Delete(t.Context(), "a-client", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	l.until(t, "a", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
}

// TestFrontAway: while the front is away, what is ready is used, also through a restart; what is new waits for it.
func TestFrontAway(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.borrows(t, "default")
	dir := t.TempDir()
	l := f.lend(t, dir)
	s := l.create(t, named("a"))
	credentials := l.credentials(t, s)
	f.stop()
	l.stop()

	l = f.lend(t, dir)
	l.ask(t, named("b"))
	l.saying(t, "b", metav1.ConditionFalse, v1alpha1.ReasonDestinationFailed, "connection refused")
	l.saying(t, "a", metav1.ConditionTrue, v1alpha1.ReasonDestinationUnknown, "connection refused")
	s = l.follow(t, "a", "served", func(s *v1alpha1.EtcdStorage) bool { return s != nil })
	again(t, "the certificate is not good while the front is away", func() error { return refused(t, s, credentials) })

	f.start(t)
	l.core = f.core
	l.until(t, "a", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)
	put(t, l.connect(t, l.until(t, "b", metav1.ConditionTrue, v1alpha1.ReasonCertificatesWritten)), "key", "value")
}

// TestFrontForgets: an EtcdStorage goes also where the lender has no rights any more.
func TestFrontForgets(t *testing.T) {
	t.Parallel()
	f := newFront(t)
	f.borrows(t, "default")
	l := f.lend(t, t.TempDir())
	l.create(t, named("a"))
	if err := f.core.RbacV1().RoleBindings("default").Delete(t.Context(), "lender", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := l.lent.Delete().Resource("etcdstorages").Name("a").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	l.saying(t, "a", metav1.ConditionFalse, v1alpha1.ReasonDestinationFailed, "is forbidden")
	l.follow(t, "a", "gone", func(s *v1alpha1.EtcdStorage) bool { return s == nil })
	if took := time.Since(begun); took < rightsTimeout-time.Second { // the time of a deletion is in seconds
		t.Errorf("it is gone after %v: the front may not have known its rights yet", took)
	}
}

// TestFrontUnknown: a kubeconfig that cannot be used is an error of Build.
func TestFrontUnknown(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New("alone").Storage(sqlite.File{Path: filepath.Join(t.TempDir(), "lent.db")}).With(
		authn.Admin{}, EtcdStorages{Kubeconfig: "absent.kubeconfig"},
	).Build()
	if err == nil || !strings.Contains(err.Error(), `field Kubeconfig: open absent.kubeconfig`) {
		t.Errorf("%v, want that the file is not there", err)
	}
}
