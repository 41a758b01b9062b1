package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/test/program"
	"github.com/sailplane-dev/sailplane/test/script"
)

// binaries is where TestMain has put the examples.
var binaries string

func TestMain(m *testing.M) {
	testscript.Main(program.Tests{M: m, Build: build}, map[string]func(){"own-klog": ownKlog})
}

// registry is the example that is a module of its own, and a binary.
const registry = "clusterregistry"

// build builds every example as it is, but for the address of the minimal one,
// which has no flag, and puts sailplane and kubectl beside them.
func build(ctx context.Context, dir string) error {
	binaries = dir
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		return err
	}
	original := filepath.Join(root, "examples", "minimal", "main.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return err
	}
	const address = `"127.0.0.1:6443"`
	if n := bytes.Count(source, []byte(address)); n != 1 {
		return fmt.Errorf("%s has %s %d times, want once", original, address, n)
	}
	copied, overlay := filepath.Join(dir, "minimal.go.txt"), filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(copied, bytes.Replace(source, []byte(address), []byte(`"127.0.0.1:0"`), 1), 0o600); err != nil {
		return err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: copied}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(overlay, replace, 0o600); err != nil {
		return err
	}
	for module, args := range map[string][]string{
		root: {"-overlay=" + overlay, "./examples/..."},
		filepath.Join(root, "examples", registry): {"."},
	} {
		// The flags are those of the Makefile's tests: the build is shared with them.
		c := exec.CommandContext(ctx, "go", append([]string{"build", "-pgo=off", "-ldflags=-s -w", "-o", dir + string(filepath.Separator)}, args...)...)
		c.Dir = module
		if out, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", c, err, bytes.TrimSpace(out))
		}
	}
	return script.Build(ctx, dir)
}

// TestReadmes does what the README of every example says.
func TestReadmes(t *testing.T) {
	t.Parallel()
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			readme, err := os.ReadFile(filepath.Join("..", "..", "examples", name, "README.md"))
			if err != nil {
				t.Fatalf("an example needs a README.md: %v", err)
			}
			if strings.Contains(string(readme), "```sh") {
				t.Error("README.md: a block of sh is not run by this test: use console")
			}
			commands, err := parse(string(readme))
			if err != nil {
				t.Fatal(err)
			}
			want := "go run ./examples/" + name
			var flags []string
			if name == registry && len(commands) > 1 {
				want = "go -C examples/" + name + " build -o ../../bin/ ."
				serve := strings.Fields(commands[1].text)
				if flags = serve[2:]; !slices.Equal(serve[:2], []string{"bin/" + name, "serve"}) {
					t.Fatalf("README.md: the second command must be that of the server: %s", serve)
				}
				commands = slices.Delete(commands, 1, 2)
			}
			if len(commands) < 2 || commands[0].text != want {
				t.Fatalf("README.md: the first command must be %q, followed by others", want)
			}
			s := prepare(t)
			s.start(name, flags...)
			s.follow(commands[1:])
			s.prints(commands[0], "..."+strings.Join(commands[0].output, "\n...")+"...", &s.out)
			s.stop()
		})
	}
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range names(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t)
			config, err := clientcmd.BuildConfigFromFlags("", s.start(name))
			if err != nil {
				t.Fatal(err)
			}
			client, err := discovery.NewDiscoveryClientForConfig(rest.AnonymousClientConfig(config))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := client.ServerGroups(); !apierrors.IsUnauthorized(err) {
				t.Errorf("without credentials: %v, want Unauthorized", err)
			}
			s.stop()
		})
	}
}

// TestObjectsOutliveTheServer is what the examples with a storage in files say.
func TestObjectsOutliveTheServer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, resource, namespace string
		object                      map[string]any
	}{
		"minimal": {
			reason: "the embedded etcd is in a folder", resource: "configmaps", namespace: "default",
			object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"},
		},
		"crds": {
			reason: "the SQLite database is a file; the CRDs are applied again over those it has", resource: "probes", namespace: "default",
			object: map[string]any{"apiVersion": "space.example.com/v1", "kind": "Probe", "spec": map[string]any{"target": "pluto"}},
		},
		"typed": {
			reason: "the SQLite database is a file", resource: "apples", namespace: "default",
			object: map[string]any{"apiVersion": "fruit.example.com/v1", "kind": "Apple", "spec": map[string]any{"variety": "Elstar"}},
		},
		"machines": {
			reason: "the table is in a file; the storage is in memory", resource: "machines",
			object: map[string]any{"apiVersion": "fleet.example.com/v1", "kind": "Machine", "spec": map[string]any{"rack": "a1"}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t)
			object := &unstructured.Unstructured{Object: c.object}
			object.SetName("kept")
			gvr := object.GroupVersionKind().GroupVersion().WithResource(c.resource)
			created, err := s.client(s.start(name)).Resource(gvr).Namespace(c.namespace).Create(t.Context(), object, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			s.stop()
			got, err := s.client(s.start(name)).Resource(gvr).Namespace(c.namespace).Get(t.Context(), "kept", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(created, got); diff != "" {
				t.Errorf("%s: the object is not what was created (-created +kept):\n%s", c.reason, diff)
			}
			s.stop()
		})
	}
}

// names are the names of the examples.
func names(t *testing.T) []string {
	t.Helper()
	mains, err := filepath.Glob(filepath.Join("..", "..", "examples", "*", "main.go"))
	if err != nil || len(mains) == 0 {
		t.Fatalf("%d examples, %v", len(mains), err)
	}
	var all []string
	for _, main := range mains {
		all = append(all, filepath.Base(filepath.Dir(main)))
	}
	return all
}
