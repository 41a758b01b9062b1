//go:build unix

// Package life has the sample-apiserver of Kubernetes, as it is released, keep its objects in a storage that another
// server lends it, from the first file to the last key: certificates are renewed, processes end, limits are reached,
// and the data moves.
package life

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
	"github.com/sailplane-dev/sailplane/test/program"
	"github.com/sailplane-dev/sailplane/test/script"
)

// patience is how long anything may take before it counts as hanging.
const patience = 2 * time.Minute

// programs are those behind, built once.
var programs behind.Programs

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // all storages at once: a life is mostly waits for clocks
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) (err error) {
		if err := script.Build(ctx, dir); err != nil {
			return err
		}
		if err := program.Build(ctx, "test", "./lending/life/lender", filepath.Join(dir, "lender")); err != nil {
			return err
		}
		programs, err = behind.BuildPrograms(ctx, dir)
		return err
	}}.Run())
}

// lender is a server that lends storage, and that the sample-apiserver is behind.
type lender struct {
	*behind.Front
	storage
	program, dir, address string
}

// lend runs a lender until the test ends.
func lend(t *testing.T, program string, s storage) *lender {
	t.Helper()
	l := &lender{storage: s, program: program, dir: t.TempDir(), address: address(t)}
	l.configure(t)
	l.start(t)
	ends(t, func() *behind.Process { return l.Process })
	return l
}

// configure writes the configuration.
func (l *lender) configure(t *testing.T) {
	t.Helper()
	own := map[string]any{"url": l.url}
	if l.password != "" {
		own["passwordFile"] = filepath.Join(l.dir, "password")
		must(t, os.WriteFile(filepath.Join(l.dir, "password"), []byte(l.password), 0o600))
	}
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "sailplane.dev/v1alpha1", "kind": "Server", "storage": own,
		"storageAPI": map[string]any{"enabled": true, "storages": []any{map[string]any{"name": other, "url": l.other}}},
	})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(l.dir, "server.yaml"), text, 0o600))
}

// start starts the lender, where it was if it was there before.
func (l *lender) start(t *testing.T) {
	t.Helper()
	front, err := behind.ServeBy(t.Context(), l.program, l.dir, "--listen", l.address, "--config", filepath.Join(l.dir, "server.yaml"))
	must(t, err)
	l.Front = front
}

// kubectl runs it as the administrator, and looks for what it says.
func (l *lender) kubectl(t *testing.T, stdin, args string, says ...string) string {
	t.Helper()
	out, err := l.Try(stdin, strings.Fields(args)...)
	must(t, err)
	for _, s := range says {
		if !strings.Contains(out, s) {
			t.Errorf("kubectl %s: %q is missing in:\n%s", args, s, out)
		}
	}
	return out
}

// refused runs kubectl, which has to fail, and returns what it says.
func (l *lender) refused(t *testing.T, stdin, args string) string {
	t.Helper()
	out, err := l.Try(stdin, strings.Fields(args)...)
	if err == nil {
		t.Errorf("kubectl %s: is not refused: %s", args, out)
	}
	return out
}

// config is that of an administrator.
func (l *lender) config(t *testing.T) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig)
	must(t, err)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	return config
}

// flunders are those in the namespace default, through a server.
func flunders(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	must(t, err)
	return client.Resource(schema.GroupVersionResource{Group: wardle, Version: "v1alpha1", Resource: "flunders"}).Namespace("default")
}

// flunder is the manifest of one.
func flunder(name, reference string) string {
	return fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: Flunder\nmetadata: {name: %s, namespace: default, labels: {kind: manual}}\n"+
		"spec: {reference: %q}\n", wardle, name, reference)
}

// ends has a process end with the test, and say what it did where the test failed.
func ends(t *testing.T, process func() *behind.Process) {
	t.Helper()
	t.Cleanup(func() {
		p := process()
		p.Kill()
		if t.Failed() {
			out := p.Text()
			t.Logf("%s wrote:\n%s", p, out[max(0, len(out)-4000):])
		}
	})
}

// address is one on this machine where nobody listened a moment ago.
func address(t *testing.T) string {
	t.Helper()
	port, err := behind.Port()
	must(t, err)
	return "127.0.0.1:" + port
}

// until waits for something to hold.
func until(t *testing.T, what string, holds func(context.Context) error) {
	t.Helper()
	if err := behind.Until(t.Context(), patience, holds); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
