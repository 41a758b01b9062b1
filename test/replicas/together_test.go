//go:build unix

package replicas

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"
)

// TestTogether: servers that start at once on an empty storage are one.
func TestTogether(t *testing.T) {
	onEach(t, func(t *testing.T, f *fleet) {
		a, b := f.launch(t, "a"), f.launch(t, "b")
		ready(t, a, b)
		for name, s := range map[string]*server{"a": a, "b": b} {
			if said := s.Stderr(); said != "" {
				t.Errorf("%s logs at its first start\n%s", name, said)
			}
		}
		t.Run("credentials", func(t *testing.T) { testCredentials(t, a, b) })
		t.Run("reads", func(t *testing.T) { testReads(t, a, b) })
		t.Run("CRDs", func(t *testing.T) { testCRDs(t, a, b) })
		t.Run("status", func(t *testing.T) { testStatus(t, a, b) })
		t.Run("backup", func(t *testing.T) { testBackup(t, a, b) })
		t.Run("defaults", func(t *testing.T) { testDefaults(t, a, b) })
	})
}

// testCredentials: what one server gives out, the other one takes.
func testCredentials(t *testing.T, a, b *server) {
	t.Helper()
	ctx := t.Context()
	mixed := rest.CopyConfig(a.config)
	mixed.Host = b.config.Host
	other := &server{}
	other.use(t, mixed)
	if _, err := other.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the other server refuses the administrator: %v", err)
	}
	accounts := a.client.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{})
	must(t, err)
	token, err := accounts.CreateToken(ctx, "robot", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	for name, s := range map[string]*server{"a": a, "b": b} {
		review, err := s.client.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token.Status.Token},
		}, metav1.CreateOptions{})
		if err != nil || !review.Status.Authenticated || review.Status.User.Username != "system:serviceaccount:default:robot" {
			t.Errorf("%s reviews the token of an account as %+v, %v", name, review, err)
		}
	}
}

// testReads: a read on one server is never older than what the other one acknowledged, and a watch
// has every write, in order.
func testReads(t *testing.T, a, b *server) {
	t.Helper()
	const writes = 200
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	on := func(s *server) interface {
		Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error)
		List(context.Context, metav1.ListOptions) (*corev1.ConfigMapList, error)
	} {
		return s.client.CoreV1().ConfigMaps("default")
	}
	list, err := on(b).List(ctx, metav1.ListOptions{})
	must(t, err)
	watch, err := b.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(t, err)
	defer watch.Stop()
	var versions []string
	for n := range writes {
		writer, reader := a, b
		if n%3 == 2 {
			writer, reader = b, a
		}
		name := fmt.Sprintf("read-%03d", n)
		made, err := writer.client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		versions = append(versions, made.ResourceVersion)
		if n%2 == 0 {
			if got, err := on(reader).Get(ctx, name, metav1.GetOptions{}); err != nil || got.UID != made.UID {
				t.Fatalf("the other server does not have what was acknowledged: %v", err)
			}
			continue
		}
		got, err := on(reader).List(ctx, metav1.ListOptions{})
		must(t, err)
		if last := got.Items[len(got.Items)-1]; last.UID != made.UID {
			t.Fatalf("a list on the other server ends with %s, want %s", last.Name, name)
		}
	}
	for n := range writes {
		select {
		case e := <-watch.ResultChan():
			object, ok := e.Object.(*corev1.ConfigMap)
			if !ok || object.ResourceVersion != versions[n] {
				t.Fatalf("event %d is %v %v, want version %s", n, e.Type, e.Object, versions[n])
			}
		case <-ctx.Done():
			t.Fatalf("the watch has %d of %d events", n, writes)
		}
	}
}

// crd is the manifest of a CRD.
func crd(plural, kind string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%[1]s.example.com"},
"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"%[1]s","kind":"%[2]s"},"versions":[{"name":"v1","served":true,"storage":true,
"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"size":{"type":"integer"}}}}}}}]}}`, plural, kind)
}

// testCRDs: who was told that a CRD is established finds it on the other server.
func testCRDs(t *testing.T, a, b *server) {
	t.Helper()
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for n := range 12 {
		writer, reader := a, b
		if n%2 == 1 {
			writer, reader = b, a
		}
		plural, kind := fmt.Sprintf("boats%d", n), fmt.Sprintf("Boat%d", n)
		object := &unstructured.Unstructured{}
		must(t, json.Unmarshal([]byte(crd(plural, kind)), object))
		_, err := writer.dynamic.Resource(crds).Create(t.Context(), object, metav1.CreateOptions{})
		must(t, err)
		boat := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": kind, "metadata": map[string]any{"name": "one"}, "spec": map[string]any{"size": int64(n)},
		}}
		switch n % 3 {
		case 0: // a client that knows the type
			resource := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: plural}
			got, err := reader.dynamic.Resource(resource).Namespace("default").Create(t.Context(), boat, metav1.CreateOptions{})
			if err != nil || got.GetUID() == "" {
				t.Errorf("create %s on the other server: %v", kind, err)
			}
		case 1: // one that asks what there is
			found, err := reader.client.Discovery().ServerResourcesForGroupVersion("example.com/v1")
			has := false
			if err == nil {
				for _, r := range found.APIResources {
					has = has || r.Name == plural
				}
			}
			if !has {
				t.Errorf("discovery of the other server has no %s: %v, %v", plural, found, err)
			}
		case 2: // one that validates with OpenAPI
			file := filepath.Join(t.TempDir(), "boat.json")
			content, err := boat.MarshalJSON()
			must(t, err)
			must(t, os.WriteFile(file, content, 0o600))
			if _, err := reader.kubectl(t, "apply", "--validate=strict", "-f", file); err != nil {
				t.Error(err)
			}
			if out, err := reader.kubectl(t, "explain", plural+".spec.size"); err != nil {
				t.Error(out, err)
			}
		}
	}
}

// testBackup: both servers tell of a backup that was taken from one.
func testBackup(t *testing.T, a, b *server) {
	t.Helper()
	begun := time.Now().Truncate(time.Second) // as backups say when they were taken
	file := filepath.Join(t.TempDir(), "all.backup")
	if out, err := exec.CommandContext(t.Context(), binary, "backup", "--kubeconfig", a.Kubeconfig(), file).CombinedOutput(); err != nil {
		t.Fatalf("backup: %v: %s", err, out)
	}
	for name, s := range map[string]*server{"a": a, "b": b} {
		content, err := s.client.RESTClient().Get().AbsPath("/debug/status").DoRaw(t.Context())
		must(t, err)
		var report struct{ Storage struct{ Backup time.Time } }
		must(t, json.Unmarshal(content, &report))
		if report.Storage.Backup.Before(begun) {
			t.Errorf("%s says that the last backup was taken at %v, want %v or later", name, report.Storage.Backup, begun)
		}
	}
}

// testStatus: each server names both, and who does which work.
func testStatus(t *testing.T, a, b *server) {
	t.Helper()
	type peer struct {
		ID, Address  string
		Self         bool
		LagRevisions *int64
		Work         []string
	}
	for _, s := range []*server{a, b} {
		var report struct{ Servers []peer }
		within(t, time.Minute, "a report with both servers", func(ctx context.Context) bool {
			content, err := s.client.RESTClient().Get().AbsPath("/debug/status").DoRaw(ctx)
			must(t, err)
			must(t, json.Unmarshal(content, &report))
			return len(report.Servers) == 2
		})
		self, work := 0, map[string]int{}
		for _, p := range report.Servers {
			if p.Self {
				self++
				if s.config.Host != "https://"+p.Address {
					t.Errorf("%s says that it is at %s", s.config.Host, p.Address)
				}
			}
			if p.LagRevisions == nil {
				t.Errorf("%s does not say how far its watches are behind", p.ID)
			}
			for _, w := range p.Work {
				work[w]++
			}
		}
		if self != 1 || work["namespace-deletion"] != 1 || work["garbage-collection"] != 1 {
			t.Errorf("the servers are %+v", report.Servers)
		}
		metrics, err := s.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		must(t, err)
		for _, want := range []string{"sailplane_server_info{identity=", `leader_election_master_status{name="sailplane-garbage-collection"}`} {
			if !bytes.Contains(metrics, []byte(want)) {
				t.Errorf("the metrics have no %s", want)
			}
		}
	}
}

// testDefaults: objects that servers make at their start are made once.
func testDefaults(t *testing.T, servers ...*server) {
	t.Helper()
	made := map[string]int{}
	for _, s := range servers {
		for _, e := range s.audited(t) {
			if e.Verb == "create" && e.ResponseStatus != nil && e.ResponseStatus.Code == 201 && e.ObjectRef != nil && e.ObjectRef.Subresource == "" && e.ObjectRef.Name != "" {
				made[e.ObjectRef.Resource+"/"+e.ObjectRef.Namespace+"/"+e.ObjectRef.Name]++
			}
		}
	}
	for name, n := range made {
		if n > 1 {
			t.Errorf("%s was made %s times", name, strconv.Itoa(n))
		}
	}
	if made["namespaces//default"] != 1 {
		t.Errorf("the audit logs have %v", made)
	}
}

// audited are the events in the audit log of a server.
func (s *server) audited(t *testing.T) (all []auditv1.Event) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(s.dir, "audit.log"))
	must(t, err)
	lines := bufio.NewScanner(bytes.NewReader(content))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e auditv1.Event
		must(t, json.Unmarshal(lines.Bytes(), &e))
		all = append(all, e)
	}
	must(t, lines.Err())
	return all
}
