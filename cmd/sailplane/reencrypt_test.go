package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

// lock marks stored values with the name of the key that is the first one now.
// It stands for encryption: what is written again is the same for every kind.
type lock struct{ key atomic.Int32 }

func (l *lock) prefix() []byte { return fmt.Appendf(nil, "k8s:enc:test:%d:", l.key.Load()) }

// TransformerForResource implements value.ResourceTransformers.
func (l *lock) TransformerForResource(schema.GroupResource) value.Transformer { return l }

// TransformFromStorage implements value.Transformer.
func (l *lock) TransformFromStorage(_ context.Context, data []byte, _ value.Context) ([]byte, bool, error) {
	if !bytes.HasPrefix(data, []byte("k8s:enc:test:")) {
		return nil, false, errors.New("not locked")
	}
	return data[len(l.prefix()):], !bytes.HasPrefix(data, l.prefix()), nil
}

// TransformToStorage implements value.Transformer.
func (l *lock) TransformToStorage(_ context.Context, data []byte, _ value.Context) ([]byte, error) {
	return append(l.prefix(), data...), nil
}

// locked is a running server whose values are locked.
type locked struct {
	*lock
	storage    controlplane.Backend
	kubeconfig string
	client     *kubernetes.Clientset
	objects    dynamic.Interface
	// update is asked about every update of a Secret, after the objects were made.
	update atomic.Pointer[func(name string) error]
}

// opened is a storage that a test looks into.
type opened struct{ controlplane.Backend }

func (o opened) Open() controlplane.Backend { return o }
func (opened) Traits() controlplane.Traits  { return memory.Store{}.Traits() }

func startLocked(t *testing.T) *locked {
	t.Helper()
	s := &locked{lock: &lock{}, storage: memory.Store{}.Open(), kubeconfig: filepath.Join(t.TempDir(), "admin.kubeconfig")}
	server := startServer(t, opened{s.storage},
		authn.Admin{Kubeconfig: s.kubeconfig}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, aggregator.APIServices{},
		crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(gadgets)}}},
		admit.Validate("updates", func(_ context.Context, a admission.Attributes) error {
			if ask := s.update.Load(); ask != nil && a.GetOperation() == admission.Update && a.GetResource().Resource == "secrets" {
				return (*ask)(a.GetName())
			}
			return nil
		}),
		controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
			p.Transform("lock", func(context.Context) (*controlplane.Transformation, error) {
				return &controlplane.Transformation{Resources: s.lock}, nil
			})
			return nil
		}),
	)
	var err error
	if s.client, err = kubernetes.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	if s.objects, err = dynamic.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return s
}

// startServer runs a server until the end of the test.
func startServer(t *testing.T, storage controlplane.Storage, parts ...controlplane.Part) *controlplane.Server {
	t.Helper()
	server, err := controlplane.New("commands").Listen("127.0.0.1:0").Storage(storage).With(parts...).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-server.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return server
}

// fill makes Secrets, a ConfigMap and Gadgets.
func (s *locked) fill(t *testing.T) {
	t.Helper()
	// APIServices are written when somebody first asks for them.
	if err := s.client.CoreV1().RESTClient().Get().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	for i := range 25 {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%02d", i)}}
		if _, err := s.client.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	if _, err := s.client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"g-1", "g-2"} {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}
		u.SetName(name)
		gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
		if _, err := s.objects.Resource(gvr).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// count is how many values below a path have a key.
func (s *locked) count(t *testing.T, path string, key int) int {
	t.Helper()
	client, err := s.storage.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	r, err := client.Get(t.Context(), "/registry/"+path, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, kv := range r.Kvs {
		if bytes.HasPrefix(kv.Value, fmt.Appendf(nil, "k8s:enc:test:%d:", key)) {
			n++
		}
	}
	return n
}

// run runs the command and returns what it prints.
func (s *locked) run(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetArgs(append([]string{"storage", "reencrypt", "--kubeconfig", s.kubeconfig}, args...))
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

func contains(t *testing.T, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("%s\nwant %q in it", text, want)
		}
	}
}

// TestReencrypt writes some resources, then all, then finds nothing to do.
func TestReencrypt(t *testing.T) {
	s := startLocked(t)
	s.fill(t)
	s.key.Store(1)
	out, err := s.run(t.Context(), "--dry-run")
	if err != nil || s.count(t, "", 1) > 0 {
		t.Errorf("a dry run: %v, and %d values of the new key", err, s.count(t, "", 1))
	}
	contains(t, out, "secrets: 25 objects: 25 could be written, 0 changed meanwhile, 0 failed")

	out, err = s.run(t.Context(), "--resources", "secrets,*.example.com", "--page-size", "10")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "secrets: 10/25, ", "secrets: 20/25, ", "secrets: 25 objects: 25 written, 0 up to date, 0 changed meanwhile, 0 failed, ",
		"gadgets.example.com: 2 objects: 2 written", "2 resources, 27 objects: 27 written")
	if a, b, c := s.count(t, "secrets/", 1), s.count(t, "example.com/gadgets/", 1), s.count(t, "configmaps/", 1); a != 25 || b != 2 || c != 0 {
		t.Errorf("%d Secrets, %d Gadgets and %d ConfigMaps have the new key, want 25, 2 and 0", a, b, c)
	}

	if out, err = s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	contains(t, out, "secrets: 25 objects: 0 written, 25 up to date", "configmaps: 1 objects: 1 written", "customresourcedefinitions.apiextensions.k8s.io: 1 objects: 1 written")
	if n := s.count(t, "", 0); n > 0 {
		t.Errorf("%d values have the old key", n)
	}
}

// TestReencryptFailures goes on after a failure, tells it, and does only the
// rest the next time.
func TestReencryptFailures(t *testing.T) {
	s := startLocked(t)
	s.fill(t)
	s.key.Store(1)
	refuse := func(name string) error {
		if name == "s-03" || name == "s-17" {
			return errors.New("not this one")
		}
		return nil
	}
	s.update.Store(&refuse)
	state := filepath.Join(t.TempDir(), "progress.json")
	out, err := s.run(t.Context(), "--state", state, "--page-size", "10")
	if err == nil {
		t.Fatal("no error")
	}
	contains(t, err.Error(), "2 failures:", "secrets default/s-03: ", "secrets default/s-17: ", "not this one")
	contains(t, out, "secrets: 25 objects: 23 written, 0 up to date, 0 changed meanwhile, 2 failed", "gadgets.example.com: 2 objects: 2 written")

	s.update.Store(nil)
	if out, err = s.run(t.Context(), "--state", state); err != nil {
		t.Fatal(err)
	}
	contains(t, out, "secrets: 25 objects: 2 written, 23 up to date", "gadgets.example.com: already done, 2 objects")
	if _, err := os.Stat(state); !os.IsNotExist(err) {
		t.Errorf("the progress is still there: %v", err)
	}
}

// TestReencryptInterrupted ends in the middle and goes on with the page it was in.
func TestReencryptInterrupted(t *testing.T) {
	s := startLocked(t)
	s.fill(t)
	s.key.Store(1)
	ctx, cancel := context.WithCancel(t.Context())
	var updates atomic.Int32
	interrupt := func(string) error {
		if updates.Add(1) == 15 {
			cancel()
		}
		return nil
	}
	s.update.Store(&interrupt)
	args := []string{"--state", filepath.Join(t.TempDir(), "progress.json"), "--page-size", "10", "--workers", "1", "--resources", "secrets"}
	if _, err := s.run(ctx, args...); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Fatalf("interrupted: %v", err)
	}
	updates.Store(100)
	out, err := s.run(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	// Pages are read as they were: what the first run wrote of its last page is a
	// conflict. It is found before anybody is asked where the watch cache has seen
	// the write, and when it is written otherwise.
	if n := updates.Load() - 100; n < 10 || n > 15 {
		t.Errorf("the second run made %d updates, want those of the pages that were not done", n)
	}
	contains(t, out, "secrets: 20/25, ", "secrets: 25 objects: ")
	if n := s.count(t, "secrets/", 1); n != 25 {
		t.Errorf("%d Secrets have the new key, want 25", n)
	}
}

// TestReencryptSkips leaves alone what somebody else wrote or deleted.
func TestReencryptSkips(t *testing.T) {
	s := startLocked(t)
	s.fill(t)
	s.key.Store(1)
	secrets := s.client.CoreV1().Secrets("default")
	busy := func(name string) error {
		s.update.Store(nil) // once
		changed := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s-20", Labels: map[string]string{"a": "b"}}}
		_, err := secrets.Update(t.Context(), changed, metav1.UpdateOptions{})
		return errors.Join(err, secrets.Delete(t.Context(), "s-21", metav1.DeleteOptions{}))
	}
	s.update.Store(&busy)
	out, err := s.run(t.Context(), "--resources", "secrets", "--workers", "1")
	if err != nil {
		t.Fatal(err)
	}
	contains(t, out, "secrets: 25 objects: 23 written, 0 up to date, 2 changed meanwhile, 0 failed")
	if got, err := secrets.Get(t.Context(), "s-20", metav1.GetOptions{}); err != nil || got.Labels["a"] != "b" {
		t.Errorf("what somebody else wrote: %v, %v", got.GetLabels(), err)
	}
}

// TestReencryptExpiredPosition goes on with the position that comes with the answer.
func TestReencryptExpiredPosition(t *testing.T) {
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next := r.URL.Query().Get("continue")
		asked = append(asked, next)
		w.Header().Set("Content-Type", "application/json")
		if next == "old" {
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"metadata":{"continue":"new"}}`)
			return
		}
		fmt.Fprint(w, `{"kind":"SecretList","apiVersion":"v1","metadata":{},"items":[]}`)
	}))
	defer server.Close()
	objects, err := dynamic.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := &rewriter{
		objects: objects, pageSize: 10, workers: 1, out: &out,
		progress: &progress{Done: map[string]tally{}, Resource: "secrets", Continue: "old", Counted: tally{Rewritten: 7}},
	}
	counted, err := w.resource(t.Context(), served.Resource{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}})
	if err != nil || counted.Rewritten != 7 || !slices.Equal(asked, []string{"old", "new"}) {
		t.Errorf("asked for %q, counted %+v: %v", asked, counted, err)
	}
}

// TestOldProgress is not gone on with: another key may be the first one since.
func TestOldProgress(t *testing.T) {
	file, now := filepath.Join(t.TempDir(), "progress.json"), time.Now()
	for age, want := range map[time.Duration]string{time.Hour: "", 25 * time.Hour: "delete the file to start over"} {
		before := &progress{file: file, Server: "https://a", Begun: now.Add(-age), Done: map[string]tally{"secrets": {Rewritten: 3}}}
		if err := before.save(); err != nil {
			t.Fatal(err)
		}
		p := &progress{Server: "https://a", Begun: now}
		err := p.load(file)
		if want == "" && (err != nil || p.Done["secrets"].Rewritten != 3 || !p.Begun.Equal(before.Begun)) {
			t.Errorf("after %v: %v, %+v", age, err, p)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("after %v: %v, want %q", age, err, want)
		}
	}
}

// TestReencryptFlags are about what was given.
func TestReencryptFlags(t *testing.T) {
	s := startLocked(t)
	other := filepath.Join(t.TempDir(), "other.json")
	if err := os.WriteFile(other, []byte(`{"server":"https://elsewhere"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		args []string
		want string
	}{
		"unknown resource": {[]string{"--resources", "secrets,gizmos.example.com"}, `the server has no resource that is "gizmos.example.com"`},
		"other server":     {[]string{"--state", other}, "contains the progress for server https://elsewhere"},
		"no kubeconfig":    {[]string{"--kubeconfig", "missing"}, "--kubeconfig: "},
		"no workers":       {[]string{"--workers", "0"}, "want numbers above 0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := s.run(t.Context(), c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
