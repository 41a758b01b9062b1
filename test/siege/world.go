package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// world is what a server has: two tenants, each with role edit in a namespace, and
// somebody who may write CustomResourceDefinitions.
type world struct {
	target
	tenant *kubernetes.Clientset
}

// target is what attackers know.
type target struct {
	Base     string   `json:"base"`
	CA       []byte   `json:"ca"`
	Accounts []string `json:"accounts"` // tokens of service accounts of the attacker's namespace
	// The attacker's EtcdStorage knows who has them.
	Certificate []byte `json:"certificate"`
	Key         []byte `json:"key"`
}

const (
	victim   = "tenant"   // and its namespace
	attacker = "attacker" // and its namespace
	definer  = "definer"
	accounts = 8
)

// furnish makes the tenants.
func (s *server) furnish(ctx context.Context) (*world, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	w := &world{target: target{Base: config.Host, CA: config.CAData}}
	for _, name := range []string{victim, attacker} {
		if err := furnishNamespace(ctx, admin, name); err != nil {
			return nil, err
		}
	}
	if err := define(ctx, admin); err != nil {
		return nil, err
	}
	for i := range accounts {
		token, err := account(ctx, admin, fmt.Sprint("helper-", i))
		if err != nil {
			return nil, err
		}
		w.Accounts = append(w.Accounts, token)
	}
	if w.Certificate, w.Key, err = lend(ctx, admin); err != nil {
		return nil, err
	}
	w.tenant, err = kubernetes.NewForConfig(&rest.Config{
		Host: w.Base, TLSClientConfig: rest.TLSClientConfig{CAData: w.CA}, BearerToken: "token-of-" + victim, QPS: -1,
	})
	if err != nil {
		return nil, err
	}
	_, err = until(ctx, func() (*corev1.ConfigMap, error) {
		return w.tenant.CoreV1().ConfigMaps(victim).Create(ctx, small("kept"), metav1.CreateOptions{})
	})
	return w, err
}

func furnishNamespace(ctx context.Context, admin kubernetes.Interface, name string) error {
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := admin.RbacV1().RoleBindings(name).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "edit"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name},
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:serviceaccounts:" + name},
		},
	}, metav1.CreateOptions{})
	return err
}

// define lets a user write CustomResourceDefinitions.
func define(ctx context.Context, admin kubernetes.Interface) error {
	_, err := admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: definer},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: definer},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: definer},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: definer}},
	}, metav1.CreateOptions{})
	return err
}

// account makes a service account of the attacker, and returns a token.
func account(ctx context.Context, admin kubernetes.Interface, name string) (string, error) {
	all := admin.CoreV1().ServiceAccounts(attacker)
	if _, err := all.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	t, err := until(ctx, func() (*authenticationv1.TokenRequest, error) {
		return all.CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	})
	if err != nil {
		return "", err
	}
	return t.Status.Token, nil
}

// until repeats what the server answers with an error until it has seen a change.
func until[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		v, err := f()
		if err == nil || ctx.Err() != nil || time.Now().After(end) {
			return v, err
		}
	}
}

func small(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"colour": "green", "size": "42"}}
}

// times are how long the tenant's requests took.
type times struct {
	gets, creates []time.Duration
	refused       int // requests that failed: the tenant is honest
	why           error
}

const (
	// workers of each kind, and their pause between requests: some 100 requests a second.
	workers = 2
	pause   = 20 * time.Millisecond
)

// work has the tenant get and create for a while.
func (w *world) work(ctx context.Context, span time.Duration) (times, error) {
	ctx, cancel := context.WithTimeout(ctx, span)
	defer cancel()
	var all times
	var mu sync.Mutex
	add := func(to *[]time.Duration, begun time.Time, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err != nil && ctx.Err() == nil {
			all.refused++
			all.why = err
		}
		*to = append(*to, time.Since(begun))
	}
	maps := w.tenant.CoreV1().ConfigMaps(victim)
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				_, err := maps.Get(ctx, "kept", metav1.GetOptions{})
				add(&all.gets, begun, err)
				breathe(ctx)
			}
		})
		working.Go(func() {
			for ctx.Err() == nil {
				object := small("new-" + strings.ToLower(rand.Text()))
				begun := time.Now()
				_, err := maps.Create(ctx, object, metav1.CreateOptions{})
				add(&all.creates, begun, err)
				_ = maps.Delete(context.WithoutCancel(ctx), object.Name, metav1.DeleteOptions{}) // only so that they do not pile up
				breathe(ctx)
			}
		})
	}
	working.Wait()
	if len(all.gets) == 0 || len(all.creates) == 0 {
		return all, fmt.Errorf("the tenant made %d gets and %d creates in %v", len(all.gets), len(all.creates), span)
	}
	return all, nil
}

// breathe waits a moment, as programs do between requests.
func breathe(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(pause):
	}
}

// attackersAddress dials from an address that the server does not trust.
func attackersAddress() *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
}

// client returns one with a connection of its own.
func (t target) client(http2 bool, certificate *tls.Certificate) *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(t.CA)
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if certificate != nil {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return certificate, nil }
	}
	transport := &http.Transport{DialContext: attackersAddress().DialContext, TLSClientConfig: config, ForceAttemptHTTP2: http2, MaxConnsPerHost: 1}
	if !http2 {
		transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	}
	return &http.Client{Transport: transport, Timeout: patience}
}
