package encryption_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/quota"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	// Nobody waits a minute for a test.
	controller.EncryptionConfigFileChangePollDuration = 50 * time.Millisecond
	os.Exit(leaktest.Run(m,
		// The health check "log" keeps one goroutine for the process.
		goleak.IgnoreAnyFunction("k8s.io/apimachinery/pkg/util/wait.Forever")))
}

// limit is how long anything may take before it counts as never. What failed is
// tried again after up to a minute.
const limit = 3 * time.Minute

const crds = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: realms.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: realms, kind: Realm}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// kept is a storage in memory that outlives the servers which use it.
type kept struct{ controlplane.Backend }

func (k kept) Open() controlplane.Backend { return k }
func (kept) Traits() controlplane.Traits  { return memory.Store{}.Traits() }
func (kept) Start(context.Context) error  { return nil }
func (kept) Stop(context.Context) error   { return nil }

// keep starts a storage for the whole test.
func keep(t *testing.T) kept {
	t.Helper()
	s := memory.Store{}.Open()
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return kept{s}
}

// raw is what is stored below a path, "/secrets/", by key.
func (k kept) raw(t *testing.T, path string) map[string][]byte {
	t.Helper()
	client, err := k.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r, err := client.Get(t.Context(), "/registry"+path, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = kv.Value
	}
	return all
}

// stored is the one value below a path.
func (k kept) stored(t *testing.T, path string) []byte {
	t.Helper()
	all := k.raw(t, path)
	if len(all) != 1 {
		t.Fatalf("%d values below %s, want 1", len(all), path)
	}
	for _, v := range all {
		return v
	}
	return nil
}

// server is a running server with encryption.
type server struct {
	t       *testing.T
	dynamic dynamic.Interface
	*kubernetes.Clientset
	stop func()
}

func parts(file string) []controlplane.Part {
	return []controlplane.Part{
		core.Namespaces{},
		core.ConfigMaps{},
		core.Secrets{},
		crd.Definitions{FS: fstest.MapFS{"crds.yaml": {Data: []byte(crds)}}},
		apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples",
			apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", v1alpha1.ToHub, v1alpha1.FromHub))),
		lifecycle.GarbageCollection{},
		quota.ResourceQuotas{},
		encryption.AtRest{ConfigFile: file},
	}
}

func start(t *testing.T, d controlplane.Storage, file string) *server {
	t.Helper()
	s, err := controlplane.New("encryption").Storage(d).With(parts(file)...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	running := &server{t: t}
	stopped := false
	running.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	t.Cleanup(running.stop)
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatalf("start: %v", err)
	}
	if running.dynamic, err = dynamic.NewForConfig(s.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	if running.Clientset, err = kubernetes.NewForConfig(s.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return running
}

// in is a resource by its short name here, in a namespace or in none.
func (s *server) in(namespace, resource string) dynamic.ResourceInterface {
	gvr := schema.GroupVersionResource{Version: "v1", Resource: resource}
	switch resource {
	case "gadgets", "realms":
		gvr.Group = "example.com"
	case "apples":
		gvr.Group, gvr.Version = fruit.GroupVersion().Group, "v1alpha1"
	}
	return s.dynamic.Resource(gvr).Namespace(namespace)
}

// create makes an object that has a text somewhere in it, with owners.
func (s *server) create(namespace, resource, name, text string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	s.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	u.SetAPIVersion("v1")
	u.SetKind(map[string]string{
		"configmaps": "ConfigMap", "secrets": "Secret", "namespaces": "Namespace",
		"gadgets": "Gadget", "realms": "Realm", "apples": "Apple",
	}[resource])
	switch resource {
	case "gadgets", "realms":
		u.SetAPIVersion("example.com/v1")
	case "apples":
		u.SetAPIVersion(fruit.GroupVersion().Group + "/v1alpha1")
	}
	u.SetName(name)
	u.SetAnnotations(map[string]string{"example.com/text": text})
	u.SetOwnerReferences(owners)
	got, err := s.in(namespace, resource).Create(s.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatalf("create %s: %v", resource, err)
	}
	return got
}

// text reads back what create put into an object.
func (s *server) text(namespace, resource, name string) string {
	s.t.Helper()
	u, err := s.in(namespace, resource).Get(s.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		s.t.Fatalf("get %s: %v", resource, err)
	}
	return u.GetAnnotations()["example.com/text"]
}

// path asks for what is no object, such as /readyz.
func (s *server) path(path string) (string, error) {
	body, err := s.RESTClient().Get().AbsPath(path).DoRaw(s.t.Context())
	return string(body), err
}

func (s *server) untilGone(namespace, resource, name string) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%s %s is gone", resource, name), func() bool {
		_, err := s.in(namespace, resource).Get(s.t.Context(), name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// until waits for a condition, and says what was waited for in vain.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", limit, what)
		}
	}
}

// rule is an entry of a configuration: providers for resources.
func rule(resources string, providers ...string) string {
	return fmt.Sprintf("- resources: [%s]\n  providers:\n  - %s\n", resources, strings.Join(providers, "\n  - "))
}

// local is a provider with keys of these names; the name decides the key.
func local(kind string, names ...string) string {
	var keys []string
	for _, name := range names {
		key := bytes.Repeat([]byte(name)[:1], 32)
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", name, base64.StdEncoding.EncodeToString(key)))
	}
	return fmt.Sprintf("%s: {keys: [%s]}", kind, strings.Join(keys, ", "))
}

const plain = "identity: {}"

// write writes a configuration, whole or not at all, and returns its path.
func write(t *testing.T, file string, rules ...string) string {
	t.Helper()
	if file == "" {
		file = filepath.Join(t.TempDir(), "encryption.yaml")
	}
	content := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" + strings.Join(rules, "")
	if err := os.WriteFile(file+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	return file
}
