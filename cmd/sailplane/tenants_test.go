package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// TestWriteTenants: a line for each EtcdStorage, and below what is wrong.
func TestWriteTenants(t *testing.T) {
	t.Parallel()
	of := func(name string, ready metav1.Condition, u *v1alpha1.EtcdStorageUsage) v1alpha1.EtcdStorage {
		ready.Type = v1alpha1.ConditionReady
		return v1alpha1.EtcdStorage{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Now().Add(-12*time.Hour - 30*time.Minute))},
			Status:     v1alpha1.EtcdStorageStatus{Storage: "default", Used: u, Conditions: []metav1.Condition{ready}},
		}
	}
	keys, size := int64(10), resource.MustParse("256Mi")
	full := of("full", metav1.Condition{Status: "False", Reason: "LimitReached", Message: "delete\x1b[2J some"}, &v1alpha1.EtcdStorageUsage{Keys: 10, Bytes: 4096})
	full.Spec.Limits = v1alpha1.EtcdStorageLimits{Keys: &keys, Bytes: &size}
	cases := map[string]struct {
		reason string
		all    []v1alpha1.EtcdStorage
		want   string
	}{
		"none": {reason: "an empty table says nothing", want: "This server lends storage to nobody: create an EtcdStorage.\n"},
		"all": {
			reason: "what is wrong has room below",
			all: []v1alpha1.EtcdStorage{
				full, of("new", metav1.Condition{Status: "True"}, nil),
				{ObjectMeta: full.ObjectMeta},
				of("away", metav1.Condition{Status: "True", Reason: "DestinationUnknown", Message: "the front is away"}, nil),
			},
			want: "ETCDSTORAGE   READY     STORAGE   KEYS   OF   BYTES   OF      AGE\n" +
				"full          False     default   10     10   4Ki     256Mi   12h\n" +
				"new           True      default   -      -    -       -       12h\n" +
				"full          Unknown   -         -      -    -       -       12h\n" +
				"away          True      default   -      -    -       -       12h\n\n" +
				"full: LimitReached: delete\\x1b[2J some\n" +
				"away: DestinationUnknown: the front is away\n",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			if err := writeTenants(&got, c.all); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

// borrow makes an EtcdStorage of a server, and returns a client of it when it is ready.
func borrow(t *testing.T, kubeconfig, name string, objects dynamic.Interface, c kubernetes.Interface) *clientv3.Client {
	t.Helper()
	at := func(what string) map[string]any { return map[string]any{"namespace": "default", "name": name + what} }
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.SchemeGroupVersion().String(), "kind": "EtcdStorage", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"clientCertificate": map[string]any{"secret": at("-client")}, "authority": map[string]any{"configMap": at("-ca")},
		},
	}}
	of := objects.Resource(v1alpha1.SchemeGroupVersion().WithResource("etcdstorages"))
	if _, err := of.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var s v1alpha1.EtcdStorage
	for end := time.Now().Add(time.Minute); !meta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady); {
		if time.Now().After(end) {
			t.Fatalf("after a minute: %s", must(t, "tenants", "--kubeconfig", kubeconfig))
		}
		u, err := of.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	secret, err := c.CoreV1().Secrets("default").Get(t.Context(), name+"-client", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	authority, err := c.CoreV1().ConfigMaps("default").Get(t.Context(), name+"-ca", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(authority.Data["ca.crt"]))
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{s.Status.Endpoint}, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestTenantBackup: what one EtcdStorage has goes to a file, and into another one.
func TestTenantBackup(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "admin.kubeconfig")
	server := startServer(t, memory.Store{}, authn.Admin{Kubeconfig: kubeconfig}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		storageapi.EtcdStorages{}, backup.Endpoint{})
	c, err := kubernetes.NewForConfig(server.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(server.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	a, b := borrow(t, kubeconfig, "a", objects, c), borrow(t, kubeconfig, "b", objects, c)
	for i := range 3 {
		if _, err := a.Put(t.Context(), fmt.Sprintf("/registry/%d", i), "k8s:enc:aescbc:v1:one:x"); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file, whole := filepath.Join(dir, "a.backup"), filepath.Join(dir, "whole.backup")
	contains(t, must(t, "tenants", "backup", "--kubeconfig", kubeconfig, "a", file),
		file+": backup of EtcdStorage a of ", ": 3 keys, ", "3 values with k8s:enc:aescbc:v1:one:")
	if stat, err := os.Stat(file); err != nil || stat.Mode() != 0o600 {
		t.Errorf("the file: %v, %v", stat.Mode(), err)
	}
	contains(t, must(t, "backup", "--list", file), "etcdstorage   a\n", "keys          3, and 0 that expire")
	must(t, "backup", "--kubeconfig", kubeconfig, whole)
	contains(t, must(t, "backup", "--list", whole), "of etcdstorages   3 keys, ", "etcdstorages.storage.sailplane.dev")
	restored := "sqlite:" + filepath.Join(t.TempDir(), "state.db")
	must(t, "restore", whole, "--to", restored)
	contains(t, must(t, "backup", "--storage", restored, filepath.Join(t.TempDir(), "stored.backup")),
		"not in it: what EtcdStorages have in other storages")
	contains(t, must(t, "tenants", "restore", "--kubeconfig", kubeconfig, "b", file),
		"restored EtcdStorage b from the backup of ", ", of EtcdStorage a, in ", ": 3 keys, 102 bytes; 0 had expired\n", "needs no restart")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if r, err := b.Get(ctx, "/registry/", clientv3.WithPrefix()); err != nil || r.Count != 3 {
		t.Errorf("b has %+v, %v", r, err)
	}
	contains(t, must(t, "tenants", "--kubeconfig", kubeconfig), "ETCDSTORAGE")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown":       {[]string{"tenants", "backup", "--kubeconfig", kubeconfig, "c", filepath.Join(dir, "c")}, `has no EtcdStorage "c"`},
		"unknown to":    {[]string{"tenants", "restore", "--kubeconfig", kubeconfig, "c", file}, `has no EtcdStorage "c"`},
		"whole":         {[]string{"tenants", "restore", "--kubeconfig", kubeconfig, "b", whole}, "sailplane restore FILE --to STORAGE"},
		"one":           {[]string{"restore", file, "--to", "sqlite:" + filepath.Join(dir, "x.db")}, "sailplane tenants restore a FILE"},
		"one, checked":  {[]string{"storage", "check", "--backup", file}, "sailplane tenants restore a FILE"},
		"no file":       {[]string{"tenants", "restore", "--kubeconfig", kubeconfig, "b", filepath.Join(dir, "missing")}, "no such file"},
		"no kubeconfig": {[]string{"tenants", "backup", "--kubeconfig", "missing", "a", file}, "no kubeconfig of a server"},
		"one argument":  {[]string{"tenants", "backup", "a"}, "accepts 2 arg(s)"},
	} {
		out, err := sailplane(t, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q\n%s", name, err, c.want, out)
		}
	}
	if all, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(all) != 2 {
		t.Errorf("after what was refused there are %v, %v", all, err)
	}
}
