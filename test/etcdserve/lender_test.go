//go:build unix

package etcdserve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
	"github.com/sailplane-dev/sailplane/test/database"
	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// rights are what the documentation has a front give to a lender, and what this test gives to its users.
const rights = `
apiVersion: v1
kind: Namespace
metadata: {name: lending}
---
apiVersion: v1
kind: Namespace
metadata: {name: wardle}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: lending, name: lender}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: wardle, name: sample}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lender-asks}
subjects: [{kind: ServiceAccount, namespace: lending, name: lender}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {namespace: kube-system, name: lender}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [create]}
- {apiGroups: [""], resources: [secrets], resourceNames: [sailplane-etcd-storage-authority], verbs: [get, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: kube-system, name: lender}
subjects: [{kind: ServiceAccount, namespace: lending, name: lender}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: lender}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lender-writes}
rules:
- {apiGroups: [""], resources: [secrets, configmaps], verbs: [get, list, watch, create, update, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: wardle, name: lender-writes}
subjects: [{kind: ServiceAccount, namespace: lending, name: lender}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lender-writes}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: borrows}
rules:
- {apiGroups: [storage.sailplane.dev], resources: [etcdstorages], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice-borrows}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: borrows}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sample}
subjects: [{kind: ServiceAccount, namespace: wardle, name: sample}]
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
`

// alone is the configuration of a server that lends storage behind another one and does nothing else.
const alone = `
apiVersion: sailplane.dev/v1alpha1
kind: Server
listen: %[1]s
advertise: ["%[1]s", lender.lending.svc]
dataDir: %[2]s
resources: []
storage: {url: "etcd+%[3]s"}
authentication:
  proxy: {clientCAFile: %[4]s, allowedNames: [behind]}
authorization:
  authorizers:
  - type: Webhook
    name: front
    webhook:
      connectionInfo: {type: KubeConfigFile, kubeConfigFile: %[5]s}
      subjectAccessReviewVersion: v1
      timeout: 3s
      authorizedTTL: 10s
      unauthorizedTTL: 1s
      failurePolicy: Deny
storageAPI:
  enabled: true
  kubeconfig: %[6]s
  storages:
  - {name: archive, url: "%[7]s", passwordFile: %[8]s}
`

// service has a kube-apiserver find what is behind it on this machine.
const service = `
apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[3]s.%[4]s}
spec:
  group: %[4]s
  version: %[3]s
  groupPriorityMinimum: 1000
  versionPriority: 15
  service: {namespace: %[1]s, name: %[2]s, port: %[5]s}
  %[6]s
`

// borrowed is an EtcdStorage with destinations in the namespace wardle.
const borrowed = `
apiVersion: storage.sailplane.dev/v1alpha1
kind: EtcdStorage
metadata: {name: %[1]s}
spec:
  storage: %[2]s
  clientCertificate: {secret: {namespace: wardle, name: %[1]s-client}}
  authority: {configMap: {namespace: wardle, name: %[1]s-ca}}
`

// lender is a server with the part only, behind a kube-apiserver.
type lender struct {
	front         *server
	admin         string // kubeconfig of the front
	proxy         tls.Certificate
	etcd          string // where it keeps what it lends
	dir, address  string
	configuration string
	process       *behind.Process
}

// newLender runs all until the test ends.
func newLender(t *testing.T) *lender {
	t.Helper()
	l := &lender{dir: t.TempDir(), address: address(t)}
	proxyFile, keyFile, _, err := behind.Certificate(filepath.Join(l.dir, "proxy"))
	must(t, err)
	l.proxy, err = tls.LoadX509KeyPair(proxyFile, keyFile)
	must(t, err)
	l.front = run(t, serve(t, sqlite(t), address(t)),
		"--proxy-client-cert-file="+proxyFile, "--proxy-client-key-file="+keyFile,
		"--requestheader-client-ca-file="+proxyFile, "--requestheader-allowed-names=behind",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-")
	l.admin = l.kubeconfig(t, "admin", l.front.config.BearerToken, "")
	l.apply(t, rights)

	var etcd *behind.Process
	folder := t.TempDir()
	etcd, l.etcd, err = programs.StartEtcd(folder)
	must(t, err)
	ends(t, func() *behind.Process { return etcd })
	archive := postgres(t)
	password := filepath.Join(l.dir, "password")
	must(t, os.WriteFile(password, []byte(database.Password), 0o600))
	token := l.token(t, "lending", "lender")
	l.configuration = filepath.Join(l.dir, "server.yaml")
	must(t, os.WriteFile(l.configuration, fmt.Appendf(nil, alone, l.address, filepath.Join(l.dir, "data"), l.etcd, proxyFile,
		l.kubeconfig(t, "reviews", token, "/apis/authorization.k8s.io/v1/subjectaccessreviews"), l.kubeconfig(t, "lender", token, ""),
		archive.url, password), 0o600))
	l.start(t)
	ends(t, func() *behind.Process { return l.process })
	authority, err := os.ReadFile(l.authority())
	must(t, err)
	l.announce(t, []string{"lending", "lender", "v1alpha1", v1alpha1.GroupName}, l.address,
		"caBundle: "+base64.StdEncoding.EncodeToString(authority))
	return l
}

// start runs the process, and returns when it serves.
func (l *lender) start(t *testing.T) {
	t.Helper()
	var err error
	l.process, err = behind.Start(filepath.Join(l.dir, "log"), exec.Command(sailplane, "serve", "--config", l.configuration))
	must(t, err)
	until(t, "the lender is ready", func(context.Context) error {
		if strings.Contains(l.process.Text(), "ready at https://") {
			return nil
		}
		return alive(l.process)
	})
}

// authority is the file with that of the lender's certificate.
func (l *lender) authority() string { return filepath.Join(l.dir, "data", "pki", "ca.crt") }

// kubeconfig writes one for the front, with a path after its address.
func (l *lender) kubeconfig(t *testing.T, name, token, path string) string {
	t.Helper()
	file := filepath.Join(l.dir, name+".kubeconfig")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `
apiVersion: v1
kind: Config
clusters: [{name: front, cluster: {server: "%s%s", certificate-authority: "%s"}}]
users: [{name: user, user: {token: "%s"}}]
contexts: [{name: front, context: {cluster: front, user: user}}]
current-context: front
`, l.front.config.Host, path, filepath.Join(l.front.dir, "apiserver.crt"), token), 0o600))
	return file
}

// token is that of a service account of the front.
func (l *lender) token(t *testing.T, namespace, name string) string {
	t.Helper()
	out, err := l.kubectl(t.Context(), "", "create", "token", name, "--namespace="+namespace)
	must(t, err)
	return strings.TrimSpace(out)
}

// kubectl runs kubectl as the administrator of the front, with an input.
func (l *lender) kubectl(ctx context.Context, input string, arguments ...string) (string, error) {
	arguments = append(arguments, "--kubeconfig="+l.admin, "--cache-dir="+filepath.Join(l.dir, "cache"))
	command := exec.CommandContext(ctx, kubectl, arguments...)
	command.Stdin = strings.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", command, err, out)
	}
	return string(out), err
}

func (l *lender) apply(t *testing.T, objects string, arguments ...string) {
	t.Helper()
	until(t, "kubectl apply", func(ctx context.Context) error {
		_, err := l.kubectl(ctx, objects, append([]string{"apply", "--filename=-"}, arguments...)...)
		return err
	})
}

// announce has the front hand on requests for a group to an address: named is the namespace and the name of its Service, and
// the version and the name of the group.
func (l *lender) announce(t *testing.T, named []string, address, trust string) {
	t.Helper()
	_, port, _ := strings.Cut(address, ":")
	l.apply(t, fmt.Sprintf(service, named[0], named[1], named[2], named[3], port, trust))
	until(t, "the front reaches "+named[1], func(ctx context.Context) error {
		_, err := l.kubectl(ctx, "", "wait", "--for=condition=Available", "--timeout=5s", "apiservice", named[2]+"."+named[3])
		return err
	})
}

// borrow makes an EtcdStorage as alice, and returns it when it is ready.
func (l *lender) borrow(t *testing.T, name, storage string) *v1alpha1.EtcdStorage {
	t.Helper()
	l.apply(t, fmt.Sprintf(borrowed, name, storage), "--as=alice")
	s := &v1alpha1.EtcdStorage{}
	until(t, name+" is ready", func(ctx context.Context) error {
		u, err := l.front.dynamic.Resource(v1alpha1.SchemeGroupVersion().WithResource("etcdstorages")).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s = &v1alpha1.EtcdStorage{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("its status is %+v", s.Status)
		}
		return nil
	})
	if want := "https://" + l.address; s.Status.Endpoint != want {
		t.Errorf("the endpoint is %s, want %s", s.Status.Endpoint, want)
	}
	return s
}

// destinations are those of an EtcdStorage, as the front has them.
func (l *lender) destinations(ctx context.Context, s *v1alpha1.EtcdStorage) (*corev1.Secret, *corev1.ConfigMap, error) {
	secret, err1 := l.front.client.CoreV1().Secrets("wardle").Get(ctx, s.Spec.ClientCertificate.Secret.Name, metav1.GetOptions{})
	authority, err2 := l.front.client.CoreV1().ConfigMaps("wardle").Get(ctx, s.Spec.Authority.ConfigMap.Name, metav1.GetOptions{})
	return secret, authority, errors.Join(err1, err2)
}

// connect is a client of an EtcdStorage, with what is in its destinations.
func (l *lender) connect(t *testing.T, s *v1alpha1.EtcdStorage) *clientv3.Client {
	t.Helper()
	secret, authority, err := l.destinations(t.Context(), s)
	must(t, err)
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(authority.Data["ca.crt"]))
	return etcdClient(t, clientv3.Config{
		Endpoints: []string{s.Status.Endpoint},
		TLS:       &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
}

func etcdClient(t *testing.T, config clientv3.Config) *clientv3.Client {
	t.Helper()
	config.Logger = zap.NewNop()
	c, err := clientv3.New(config)
	must(t, err)
	t.Cleanup(func() { _ = c.Close() }) // its error only says that it was closed
	return c
}
