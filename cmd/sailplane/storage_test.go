package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// moved is a definition of which v1 is stored, or v2.
const moved = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions:
  - {name: v1, served: true, storage: V1, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
  - {name: v2, served: true, storage: V2, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

// kept is a server with all that the commands for its storage need.
type kept struct {
	*controlplane.Server
	kubeconfig string
	client     kubernetes.Interface
	objects    dynamic.Interface
}

func startKept(t *testing.T, storage controlplane.Storage) *kept {
	t.Helper()
	k := &kept{kubeconfig: filepath.Join(t.TempDir(), "admin.kubeconfig")}
	v1 := strings.NewReplacer("V1", "true", "V2", "false").Replace(moved)
	k.Server = startServer(t, storage, authn.Admin{Kubeconfig: k.kubeconfig}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{},
		crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(v1)}}}, backup.Endpoint{}, insight.Maintenance{})
	var err error
	if k.client, err = kubernetes.NewForConfig(k.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	if k.objects, err = dynamic.NewForConfig(k.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return k
}

// sailplane runs a command and returns what it prints.
func sailplane(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	c := command()
	c.SetOut(&out)
	c.SetErr(&out)
	c.SetArgs(args)
	err := c.ExecuteContext(t.Context())
	return out.String(), err
}

// must runs a command that has to succeed.
func must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sailplane(t, args...)
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return out
}

func (k *kept) gadget(t *testing.T, version, name string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/" + version, "kind": "Gadget"}}
	u.SetName(name)
	gvr := schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "gadgets"}
	if _, err := k.objects.Resource(gvr).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// versions are how many gadgets are stored in each version.
func (k *kept) versions(t *testing.T) map[string]int64 {
	t.Helper()
	var survey backup.Survey
	if err := json.Unmarshal([]byte(must(t, "storage", "check", "--kubeconfig", k.kubeconfig, "-o", "json")), &survey); err != nil {
		t.Fatal(err)
	}
	return survey.Versions["gadgets.example.com"]
}

// TestMigrate writes what is stored in an old version again, and forgets that version.
func TestMigrate(t *testing.T) {
	t.Parallel()
	k := startKept(t, memory.Store{})
	for _, name := range []string{"a", "b", "c"} {
		k.gadget(t, "v1", name)
	}
	definitions := k.objects.Resource(definitionsResource())
	u, err := definitions.Get(t.Context(), "gadgets.example.com", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
	list[0].(map[string]any)["storage"], list[1].(map[string]any)["storage"] = false, true
	if err := unstructured.SetNestedSlice(u.Object, list, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	if _, err := definitions.Update(t.Context(), u, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	stored := func() definition {
		u, err := definitions.Get(t.Context(), "gadgets.example.com", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return definitionOf(u)
	}
	for deadline := time.Now().Add(time.Minute); len(stored().all) < 2; {
		if time.Now().After(deadline) {
			t.Fatalf("v2 is not stored: %+v", stored())
		}
	}
	out := must(t, "storage", "migrate", "gadgets.example.com", "--kubeconfig", k.kubeconfig, "--dry-run")
	contains(t, out, "3 could be written")
	if got := stored().all; len(got) != 2 {
		t.Errorf("a dry run left the versions %v", got)
	}
	// Until the server stores v2, it writes what is there already.
	for deadline := time.Now().Add(time.Minute); k.versions(t)["v2"] < 3; {
		out = must(t, "storage", "migrate", "gadgets.example.com", "--kubeconfig", k.kubeconfig)
		if time.Now().After(deadline) {
			t.Fatalf("stored are %v\n%s", k.versions(t), out)
		}
	}
	if got := k.versions(t); got["v1"] != 0 || got["v2"] != 3 {
		t.Errorf("stored are %v, want 3 in v2", got)
	}
	if got := stored().all; len(got) != 1 || got[0] != "v2" {
		t.Errorf("the versions are %v, want v2", got)
	}
	contains(t, must(t, "storage", "migrate", "gadgets.example.com", "--kubeconfig", k.kubeconfig), "0 written, 3 up to date", "storedVersions: v2")
	if _, err := sailplane(t, "storage", "migrate", "--kubeconfig", k.kubeconfig); err == nil {
		t.Error("no resource was named, and nothing was wrong")
	}
}

// TestCheck finds what is wrong with what is stored, of a server, a storage and a backup alike.
func TestCheck(t *testing.T) {
	t.Parallel()
	k := startKept(t, memory.Store{})
	k.gadget(t, "v1", "a")
	contains(t, must(t, "storage", "check", "--kubeconfig", k.kubeconfig), "gadgets.example.com", "v1: 1", "cannot be read: 0", "without owner: 0")
	c, _ := k.Stored()
	for key, value := range map[string]string{
		"/registry/configmaps/default/broken": "k8s\x00\xff\xff", "/registry/configmaps/default/other": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"default","uid":"1"}}`,
		"/registry/configmaps/gone/a":       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"gone","uid":"2"}}`,
		"/registry/configmaps/default/left": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"left","namespace":"default","uid":"3","ownerReferences":[{"uid":"no"}]}}`,
		"/registry/example.com/gizmos/x":    `{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"x","uid":"4"}}`,
	} {
		if _, err := c.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	saved := filepath.Join(t.TempDir(), "a.backup")
	must(t, "backup", "--kubeconfig", k.kubeconfig, saved)
	contains(t, must(t, "backup", "--list", saved), "configmaps", "gizmos.example.com")
	for name, args := range map[string][]string{"server": {"--kubeconfig", k.kubeconfig}, "backup": {"--backup", saved}} {
		out, err := sailplane(t, append([]string{"storage", "check"}, args...)...)
		if !errors.Is(err, errFound) {
			t.Errorf("%s: %v, want %v", name, err, errFound)
		}
		contains(t, out, "cannot be read: 2\n", "/registry/configmaps/default/broken: ", `/registry/configmaps/default/other: it is of the name "x"`,
			"without namespace: 1\n  /registry/configmaps/gone/a\n", "without definition: 1\n  /registry/example.com/gizmos/x\n")
	}
}

// TestMaintain drops history and gives back room, of a server and of a storage that is stopped.
func TestMaintain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	k := startKept(t, sqlite.File{Path: path, UnsafeNoSync: true})
	configMaps := k.client.CoreV1().ConfigMaps("default")
	for range 50 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"x": strings.Repeat("x", 100_000)}}
		if _, err := configMaps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := configMaps.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	before := *k.Storage(t.Context()).History
	must(t, "storage", "compact", "--kubeconfig", k.kubeconfig)
	if after := *k.Storage(t.Context()).History; before < 5_000_000 || after > before/10 {
		t.Errorf("history has %d bytes, and had %d", after, before)
	}
	contains(t, must(t, "storage", "defrag", "--kubeconfig", k.kubeconfig), "sqlite: size ")
	if _, err := sailplane(t, "storage", "defrag", "--storage", "sqlite:"+path); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a storage that is in use: %v", err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	must(t, "restore", save(t, k), "--to", "sqlite:"+copied)
	contains(t, must(t, "storage", "compact", "--storage", "sqlite:"+copied), "done")
	contains(t, must(t, "storage", "defrag", "--storage", "sqlite:"+copied), "done")
	contains(t, must(t, "storage", "check", "--storage", "sqlite:"+copied), "cannot be read: 0")
}

// save takes a backup of a server.
func save(t *testing.T, k *kept) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.backup")
	must(t, "backup", "--kubeconfig", k.kubeconfig, path)
	return path
}

// TestBackupAndRestore go by way of files, directories and pipes.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	k := startKept(t, memory.Store{})
	k.gadget(t, "v1", "a")
	dir, key := t.TempDir(), filepath.Join(t.TempDir(), "key")
	for path, content := range map[string]string{key: strings.Repeat("k", 64), filepath.Join(dir, "ca.key"): "private"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	many := t.TempDir()
	contains(t, must(t, "backup", "--kubeconfig", k.kubeconfig, "--keep", "1", many), "not in it: the private keys")
	all, err := os.ReadDir(many)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", err, all)
	}
	sealed := filepath.Join(t.TempDir(), "sealed.backup")
	must(t, "backup", "--kubeconfig", k.kubeconfig, "--with-pki", dir, "--pki-key-file", key, sealed)
	contains(t, must(t, "backup", "--list", sealed), "private files", "gadgets.example.com")
	first, second, pki := "sqlite:"+filepath.Join(t.TempDir(), "a.db"), "sqlite:"+filepath.Join(t.TempDir(), "b.db"), filepath.Join(t.TempDir(), "pki")
	contains(t, must(t, "restore", sealed, "--to", first, "--with-pki", pki, "--pki-key-file", key), "clients list again", "are in "+pki)
	contains(t, must(t, "restore", sealed, "--to", first), "0 written, 0 deleted", "not restored: the private keys")
	contains(t, must(t, "storage", "copy", "--from", first, "--to", second), "compared: both have the same keys and values", "clients list again")
	if got, err := os.ReadFile(filepath.Join(pki, "ca.key")); err != nil || string(got) != "private" {
		t.Errorf("%v, %q", err, got)
	}
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no file":         {[]string{"backup"}, "want the name of one file"},
		"list and file":   {[]string{"backup", "--list", sealed, "b"}, "want the name of one file"},
		"no key":          {[]string{"backup", "--with-pki", dir, "b"}, "want both"},
		"no target":       {[]string{"restore", sealed}, "--to: want a storage"},
		"two targets":     {[]string{"restore", sealed, "--to", first, "--to-config", "x"}, "and not both"},
		"memory":          {[]string{"restore", sealed, "--to", "memory"}, "is gone with its server"},
		"unknown storage": {[]string{"storage", "copy", "--from", first, "--to", "floppy:a"}, "unknown storage"},
		"nothing there":   {[]string{"storage", "copy", "--from", "sqlite:missing.db", "--to", second}, `sqlite file "missing.db" does not exist`},
		"no directory":    {[]string{"storage", "check", "--storage", "etcd:missing"}, `etcd directory "missing" does not exist`},
		"nothing in it":   {[]string{"backup", "--storage", first, "--prefix", "/else", filepath.Join(dir, "b")}, "no keys below /else"},
		"no backup":       {[]string{"restore", key, "--to", second}, "is no backup of Sailplane"},
		"something else":  {[]string{"storage", "copy", "--from", first, "--to", second, "--prefix", "else"}, "want a path"},
		"no server":       {[]string{"backup", "--kubeconfig", "missing", "b"}, "no kubeconfig of a server"},
	} {
		out, err := sailplane(t, c.args...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q\n%s", name, err, c.want, out)
		}
	}
}
