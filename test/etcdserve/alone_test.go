//go:build unix

package etcdserve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// TestAlone: a server that does nothing but lend the storage that its operator named is behind a kube-apiserver, which has
// the users, their rights, and the Secrets.
func TestAlone(t *testing.T) {
	t.Parallel()
	l := newLender(t)
	flunders := l.borrow(t, "flunders", "default")
	archived := l.borrow(t, "archived", "archive")
	t.Run("users", l.users)
	t.Run("another storage", func(t *testing.T) {
		c := l.connect(t, archived)
		_, err := c.Put(t.Context(), "key", "value")
		must(t, err)
		if r, err := c.Get(t.Context(), "key"); err != nil || len(r.Kvs) != 1 {
			t.Errorf("in PostgreSQL: %v, %v, want the key", r, err)
		}
	})
	l.sample(t, flunders)
	l.flunder(t, "first")
	t.Run("the Secret is deleted", func(t *testing.T) { l.written(t, flunders) })
	t.Run("the lender restarts without its front", func(t *testing.T) { l.restart(t, flunders) })
	l.flunder(t, "second")
	t.Run("the Secret is deleted again", func(t *testing.T) { l.written(t, flunders) })
	t.Run("deleted", func(t *testing.T) { l.gone(t, flunders) })
}

// users: who may do what is for the front to say, also at the lender itself.
func (l *lender) users(t *testing.T) {
	if out, err := l.kubectl(t.Context(), "", "get", "etcdstorages", "--as=bob"); err == nil || !strings.Contains(out, "Forbidden") {
		t.Errorf("bob through the front: %s, %v, want that it is forbidden", out, err)
	}
	authority, err := os.ReadFile(l.authority())
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{l.proxy}, MinVersion: tls.VersionTLS12,
	}}
	defer transport.CloseIdleConnections()
	lent := "/apis/" + v1alpha1.SchemeGroupVersion().String() + "/etcdstorages"
	for name, c := range map[string]struct {
		user, group, path string
		want              int
	}{
		"allowed by the front":  {"alice", "some", lent, http.StatusOK},
		"refused by the front":  {"bob", "some", lent, http.StatusForbidden},
		"Secrets of the lender": {"root", "system:masters", "/api/v1/secrets", http.StatusNotFound},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.address+c.path, http.NoBody)
		must(t, err)
		r.Header.Set("X-Remote-User", c.user)
		r.Header.Set("X-Remote-Group", c.group)
		answer, err := (&http.Client{Transport: transport}).Do(r)
		must(t, err)
		body, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%s: %s %s, want %d", name, answer.Status, body, c.want)
		}
	}
}

// sample runs an unmodified sample-apiserver on an EtcdStorage, behind the same front.
func (l *lender) sample(t *testing.T, s *v1alpha1.EtcdStorage) {
	t.Helper()
	secret, authority, err := l.destinations(t.Context(), s)
	must(t, err)
	dir := t.TempDir()
	sample, err := programs.NewSample(dir, s.Status.Endpoint, l.kubeconfig(t, "sample", l.token(t, "wardle", "sample"), ""))
	must(t, err)
	arguments := make([]string, 0, 3)
	for flag, content := range map[string][]byte{
		"--etcd-certfile": secret.Data[corev1.TLSCertKey], "--etcd-keyfile": secret.Data[corev1.TLSPrivateKeyKey],
		"--etcd-cafile": []byte(authority.Data["ca.crt"]),
	} {
		file := filepath.Join(dir, strings.Trim(flag, "-"))
		must(t, os.WriteFile(file, content, 0o600))
		arguments = append(arguments, flag+"="+file)
	}
	command := sample.Command
	sample.Command = func() *exec.Cmd {
		c := command()
		c.Args = slices.Concat(c.Args, arguments)
		return c
	}
	must(t, sample.Run())
	ends(t, func() *behind.Process { return sample.Process })
	must(t, sample.Ready(t.Context()))
	l.announce(t, []string{"wardle", "sample", "v1beta1", "wardle.example.com"}, "localhost:"+sample.Port, "insecureSkipTLSVerify: true")
}

// flunder makes one through the front, which has all that were made.
func (l *lender) flunder(t *testing.T, name string) {
	t.Helper()
	all := schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1beta1", Resource: "flunders"}
	flunders := l.front.dynamic.Resource(all).Namespace("wardle")
	until(t, "a flunder is made", func(ctx context.Context) error {
		_, err := flunders.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": map[string]any{"name": name},
		}}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // its answer was lost
			return nil
		}
		return err
	})
	if _, err := flunders.Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
		t.Errorf("the first flunder: %v", err)
	}
}

// written deletes a Secret, which is made again and is as good.
func (l *lender) written(t *testing.T, s *v1alpha1.EtcdStorage) {
	old, _, err := l.destinations(t.Context(), s)
	must(t, err)
	must(t, l.front.client.CoreV1().Secrets("wardle").Delete(t.Context(), old.Name, metav1.DeleteOptions{}))
	until(t, "the Secret is there again", func(ctx context.Context) error {
		now, _, err := l.destinations(ctx, s)
		if err == nil && now.UID == old.UID {
			err = errors.New("it is the old one")
		}
		return err
	})
	l.lent(t, l.connect(t, s))
}

func isFlunder(kv *mvccpb.KeyValue) bool {
	return strings.Contains(string(kv.Key), "/flunders/wardle/")
}

// lent: a client sees what the sample keeps.
func (l *lender) lent(t *testing.T, c *clientv3.Client) {
	t.Helper()
	until(t, "a client sees the flunder", func(ctx context.Context) error {
		r, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err == nil && !slices.ContainsFunc(r.Kvs, isFlunder) {
			err = fmt.Errorf("found %v", r.Kvs)
		}
		return err
	})
}

// restart kills the lender and its front. The lender serves what it has lent before its front is there again.
func (l *lender) restart(t *testing.T, s *v1alpha1.EtcdStorage) {
	c := l.connect(t, s)
	l.front.process.Kill()
	l.process.Kill()
	l.start(t)
	l.lent(t, c)
	l.front.start(t)
}

// gone deletes an EtcdStorage as alice: what was written for it is deleted, too, in the front and in the etcd.
func (l *lender) gone(t *testing.T, s *v1alpha1.EtcdStorage) {
	stored := etcdClient(t, clientv3.Config{Endpoints: []string{l.etcd}})
	count := func() int64 {
		r, err := stored.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		must(t, err)
		n := int64(0)
		for _, kv := range r.Kvs {
			if isFlunder(kv) {
				n++
			}
		}
		return n
	}
	if n := count(); n != 2 {
		t.Errorf("the etcd has %d flunders, want 2", n)
	}
	until(t, "the EtcdStorage is deleted", func(ctx context.Context) error {
		_, err := l.kubectl(ctx, "", "delete", "etcdstorage", s.Name, "--as=alice", "--ignore-not-found", "--timeout=1m")
		return err
	})
	if n := count(); n != 0 {
		t.Errorf("the etcd has %d flunders after the deletion, want none", n)
	}
	for what, get := range map[string]func() error{
		"Secret": func() error {
			_, err := l.front.client.CoreV1().Secrets("wardle").Get(t.Context(), s.Spec.ClientCertificate.Secret.Name, metav1.GetOptions{})
			return err
		},
		"ConfigMap": func() error {
			_, err := l.front.client.CoreV1().ConfigMaps("wardle").Get(t.Context(), s.Spec.Authority.ConfigMap.Name, metav1.GetOptions{})
			return err
		},
	} {
		if err := get(); !apierrors.IsNotFound(err) {
			t.Errorf("the %s of the deleted one: %v, want it deleted", what, err)
		}
	}
}
