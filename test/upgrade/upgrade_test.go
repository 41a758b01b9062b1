package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	library = "github.com/sailplane-dev/sailplane"
	limit   = 2 * time.Minute
)

// TestOldPrograms does to programs of earlier versions what docs/upgrading.md says,
// builds them with the library as it is, and runs them.
func TestOldPrograms(t *testing.T) {
	t.Parallel()
	rows := page(t)
	used := map[row]bool{}
	programs := map[string]func(t *testing.T, program string){
		"first": servesFirst,
		"names": answers,
	}
	t.Run("programs", func(t *testing.T) {
		for name, run := range programs {
			source := read(t, filepath.Join("testdata", name, "main.go.txt"))
			for _, r := range rows {
				changed, applied, err := r.apply(source)
				must(t, err)
				used[r] = used[r] || applied
				source = changed
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				program, out, err := build(t, source)
				if err != nil {
					t.Fatalf("%v\n%s\nof\n%s", err, out, source)
				}
				run(t, program)
			})
		}
	})
	for _, r := range rows {
		if !used[r] {
			t.Errorf("%s: no program of testdata uses %s: add it to testdata/names", r.kind, r.old)
		}
	}
}

// TestEveryRowIsNeeded leaves out one row of the page at a time: the program of
// all old names does not build then.
func TestEveryRowIsNeeded(t *testing.T) {
	t.Parallel()
	rows := page(t)
	source := read(t, filepath.Join("testdata", "names", "main.go.txt"))
	for left := range rows {
		t.Run(rows[left].old, func(t *testing.T) {
			t.Parallel()
			changed := source
			for i, r := range rows {
				if i != left {
					var err error
					changed, _, err = r.apply(changed)
					must(t, err)
				}
			}
			if _, out, err := build(t, changed); err == nil {
				t.Errorf("it builds without the row: %s", out)
			}
		})
	}
}

// TestUnchanged builds the old programs as they were written: each error is about
// something that the page names.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"first", "names"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, out, err := build(t, read(t, filepath.Join("testdata", name, "main.go.txt")))
			if err == nil {
				t.Fatal("the old program builds without a change: the page says it needs some")
			}
			if !strings.Contains(out, library+"/pkg/etcd") {
				t.Errorf("the build does not miss pkg/etcd:\n%s", out)
			}
		})
	}
}

// page returns the rows of docs/upgrading.md.
func page(t *testing.T) []row {
	t.Helper()
	rows, err := parse(string(read(t, filepath.Join("..", "..", "docs", "upgrading.md"))))
	must(t, err)
	if len(rows) == 0 {
		t.Fatal("docs/upgrading.md has no tables")
	}
	return rows
}

// build builds a program in a module of its own, which uses the library as it is
// in this repository and the versions that it was tested with.
//
// One thing is changed that the page does not say: the address, for which the
// first program has no flag, and which another server may have.
func build(t *testing.T, source []byte) (program, out string, err error) {
	t.Helper()
	source = bytes.ReplaceAll(source, []byte(`"127.0.0.1:6443"`), []byte(`"127.0.0.1:0"`))
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	dir := t.TempDir()
	gomod := bytes.Replace(read(t, filepath.Join(root, "go.mod")), []byte("module "+library), []byte("module example.com/old"), 1)
	gomod = fmt.Appendf(gomod, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", library, library, root)
	for name, data := range map[string][]byte{"main.go": source, "go.mod": gomod, "go.sum": read(t, filepath.Join(root, "go.sum"))} {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	// The flags are those of the Makefile's tests: the build is shared with them.
	c := exec.CommandContext(t.Context(), "go", "build", "-pgo=off", "-mod=readonly", "-o", "program", ".")
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off")
	b, err := c.CombinedOutput()
	return filepath.Join(dir, "program"), string(b), err
}

// servesFirst runs the first README's program: it is ready when it has written its
// kubeconfig, and stops without an error when it is interrupted.
func servesFirst(t *testing.T, program string) {
	dir := t.TempDir()
	var stderr bytes.Buffer
	server := exec.Command(program)
	server.Dir, server.Stderr = dir, &stderr
	must(t, server.Start())
	var ending error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ending = server.Wait()
	}()
	t.Cleanup(func() {
		_ = server.Process.Kill() // it may have ended
		<-ended
		if t.Failed() {
			t.Logf("%v: %s", ending, stderr.Bytes())
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	client := dial(ctx, t, filepath.Join(dir, "admin.kubeconfig"), ended)
	if body, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil || string(body) != "ok" {
		t.Fatalf("readyz: got %q, %v", body, err)
	}
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "old"}, Data: map[string]string{"a": "b"}}
	_, err := client.CoreV1().ConfigMaps("default").Create(ctx, object, metav1.CreateOptions{})
	must(t, err)
	got, err := client.CoreV1().ConfigMaps("default").Get(ctx, "old", metav1.GetOptions{})
	must(t, err)
	if got.Data["a"] != "b" {
		t.Errorf("data: got %v", got.Data)
	}
	must(t, server.Process.Signal(os.Interrupt))
	select {
	case <-ended:
		if ending != nil {
			t.Errorf("interrupted: %v", ending)
		}
	case <-ctx.Done():
		t.Errorf("not stopped after %v", limit)
	}
}

// dial waits for a kubeconfig and returns its client.
func dial(ctx context.Context, t *testing.T, kubeconfig string, ended <-chan struct{}) *kubernetes.Clientset {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err == nil {
			client, err := kubernetes.NewForConfig(config)
			must(t, err)
			return client
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatal("the server ended before it was ready")
		case <-ctx.Done():
			t.Fatalf("no kubeconfig after %v: %v", limit, err)
		}
	}
}

// answers runs a program that ends by itself.
func answers(t *testing.T, program string) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, program)
	c.Dir = t.TempDir()
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	want := "memory answers\nsqlite answers\netcd answers\na server builds\ncluster shared: true\n"
	if err != nil || string(out) != want {
		t.Errorf("got %v\n%s%s\nwant\n%s", err, out, stderr.Bytes(), want)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	must(t, err)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
