package main

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// run runs a command and returns what it prints.
func run(ctx context.Context, plane *planetest.Plane, args ...string) (string, error) {
	var out bytes.Buffer
	c := command()
	c.SetArgs(append(args, "--kubeconfig", plane.Kubeconfig()))
	c.SetOut(&out)
	c.SetErr(&out)
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// versions are the versions of all clusters.
func versions(t *testing.T, plane *planetest.Plane) map[string]string {
	t.Helper()
	var list v1alpha1.ClusterList
	if err := clientOf(t, plane).List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, c := range list.Items {
		all[c.Namespace+"/"+c.Name] = c.ResourceVersion
	}
	return all
}

// TestMoved applies an export in another registry, twice.
func TestMoved(t *testing.T) {
	t.Parallel()
	from := serve(t, config{watch: true})
	from.Apply(t, planetest.Files("testdata/archived.yaml"))
	create(t, clientOf(t, from), "east", 3)
	was := versions(t, from)
	for _, format := range []string{"yaml", "json"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			dir, to := t.TempDir(), serve(t, config{watch: true})
			if out, err := run(t.Context(), from, "export", "--format", format, "--to", dir); err != nil {
				t.Fatal(out, err)
			}
			file := filepath.Join(dir, "clusters."+format)
			info, err := os.Stat(file)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("the file has mode %v: %v", info.Mode(), err)
			}
			to.Apply(t, planetest.Files(file))
			before := versions(t, to)
			to.Apply(t, planetest.Files(file))
			if diff := cmp.Diff(before, versions(t, to)); diff != "" {
				t.Errorf("the second import changed something:\n%s", diff)
			}
			if diff := cmp.Diff(slices.Sorted(maps.Keys(was)), slices.Sorted(maps.Keys(before))); diff != "" {
				t.Errorf("clusters (-exported +imported):\n%s", diff)
			}
		})
	}
}

// TestExportIsFiltered: a caller's export has what they may get, and an unknown format is refused.
func TestExportIsFiltered(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true})
	create(t, clientOf(t, plane), "east", 3)
	allow(t, plane, "ann", []string{"east-00001"})
	get := func(ctx context.Context, user, format string) (string, error) {
		text, err := plane.As(user).Client().CoreV1().RESTClient().Get().AbsPath("/export").Param("format", format).DoRaw(ctx)
		return string(text), err
	}
	plane.Eventually(t, func(ctx context.Context) error {
		text, err := get(ctx, "ann", "yaml")
		if err == nil && (!strings.Contains(text, "name: east-00001") || strings.Contains(text, "name: east-00002")) {
			err = os.ErrNotExist
		}
		return err
	})
	if text, err := get(t.Context(), "bob", "json"); err != nil || strings.Contains(text, "east") {
		t.Errorf("who may get nothing exports %s, %v", text, err)
	}
	if text, err := get(t.Context(), "ann", "xml"); err == nil || !strings.Contains(text, "want yaml, json or kubeconfig") {
		t.Errorf("export as xml: %q, %v", text, err)
	}
}

// TestKubeconfig: each cluster is a context for the client's network, and the user has no secrets.
func TestKubeconfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(text string) string {
		file := filepath.Join(dir, "user.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, text := range []string{"token: secret", "auth-provider: {name: oidc, config: {refresh-token: secret}}", "exec: {comand: a}"} {
		if _, err := (config{user: write(text)}).parts(); err == nil {
			t.Errorf("%s was taken as the user of all", text)
		}
	}
	plane := serve(t, config{watch: true, user: write(
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: log-in, interactiveMode: Never, provideClusterInfo: true}")})
	plane.Apply(t, planetest.Files("testdata/archived.yaml"))
	if out, err := run(t.Context(), plane, "export", "--format", "xml"); err == nil || !strings.Contains(err.Error(), "want yaml, json or kubeconfig") {
		t.Errorf("export as xml: %v, %s", err, out)
	}
	text, err := run(t.Context(), plane, "export", "--format", "kubeconfig")
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	const name = "kube-multicluster-public/us-east"
	context := config.Contexts[name]
	if len(config.Contexts) != 1 || context == nil || config.Clusters[context.Cluster].Server != "https://100.0.0.0" ||
		config.AuthInfos[context.AuthInfo].Exec.Command != "log-in" {
		t.Errorf("kubeconfig:\n%s", text)
	}
	if err := clientcmd.ConfirmUsable(*config, name); err != nil {
		t.Errorf("the kubeconfig cannot be used: %v", err)
	}
}

// TestSchedule: exports go on, and one that fails leaves the last.
func TestSchedule(t *testing.T) {
	t.Parallel()
	dir, file := t.TempDir(), ""
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	t.Run("while it serves", func(t *testing.T) {
		plane := serve(t, config{watch: true})
		go func() {
			_, err := run(ctx, plane, "export", "--to", dir, "--every", "20ms")
			ended <- err
		}()
		file = filepath.Join(dir, "clusters.yaml")
		for _, name := range []string{"east", "west"} {
			create(t, clientOf(t, plane), name, 1)
			plane.Eventually(t, func(context.Context) error {
				text, err := os.ReadFile(file)
				if err == nil && !strings.Contains(string(text), "name: "+name) {
					err = os.ErrNotExist
				}
				return err
			})
		}
	})
	if list, err := os.ReadFile(file); err != nil || !strings.Contains(string(list), "west") {
		t.Errorf("without the server: %s, %v", list, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
}
