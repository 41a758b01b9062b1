package upgrade

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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
			dir := module(t)
			source := write(t, dir, name)
			for _, r := range rows {
				changed, err := r.apply(source)
				must(t, err)
				used[r] = used[r] || len(changed) > 0
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				program, out, err := build(t, dir)
				if err != nil {
					t.Fatalf("%v\n%s\nof\n%s", err, out, read(t, source))
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
// all old names does not compile then. All are compiled at once, as the go command takes
// most of the time to look at what they import.
func TestEveryRowIsNeeded(t *testing.T) {
	t.Parallel()
	rows := page(t)
	dir := module(t)
	var files []string // one for each row, and one for none
	for i := range len(rows) + 1 {
		files = append(files, write(t, filepath.Join(dir, strconv.Itoa(i)), "names"))
	}
	for i, r := range rows {
		_, err := r.apply(slices.Delete(slices.Clone(files), i, i+1)...)
		must(t, err)
	}
	list := command(t, dir, "list", "-e", "-export", "-pgo=off", "-mod=readonly", "-f", "{{if .Export}}{{.ImportPath}}{{end}}", "./...")
	out, err := list.Output()
	must(t, err)
	compiled := strings.Fields(string(out))
	for left, r := range rows {
		if slices.Contains(compiled, old+"/"+strconv.Itoa(left)) {
			t.Errorf("it compiles without the row of %s", r.old)
		}
	}
	if !slices.Contains(compiled, old+"/"+strconv.Itoa(len(rows))) {
		t.Errorf("it does not compile with all rows; these do: %v", compiled)
	}
}

// TestUnchanged builds the old programs as they were written: each error is about
// something that the page names.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"first", "names"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := module(t)
			write(t, dir, name)
			_, out, err := build(t, dir)
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

// old is the module of an old program.
const old = "example.com/old"

// module makes the module of an old program, which uses the library as it is in this repository
// and the versions that it was tested with.
func module(t *testing.T) (dir string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	dir = t.TempDir()
	gomod := bytes.Replace(read(t, filepath.Join(root, "go.mod")), []byte("module "+library), []byte("module "+old), 1)
	gomod = fmt.Appendf(gomod, "\nrequire %s v0.0.0\n\nreplace %s => %s\n", library, library, root)
	for name, data := range map[string][]byte{"go.mod": gomod, "go.sum": read(t, filepath.Join(root, "go.sum"))} {
		must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

// command is one of the go command in a module.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOWORK=off")
	return c
}

// write puts an old program into a directory, and returns its file.
//
// One thing is changed that the page does not say: the address, for which the
// first program has no flag, and which another server may have.
func write(t *testing.T, dir, name string) (file string) {
	t.Helper()
	source := bytes.ReplaceAll(read(t, filepath.Join("testdata", name, "main.go.txt")), []byte(`"127.0.0.1:6443"`), []byte(`"127.0.0.1:0"`))
	must(t, os.MkdirAll(dir, 0o700))
	file = filepath.Join(dir, "main.go")
	must(t, os.WriteFile(file, source, 0o600))
	return file
}

// build builds the program of a module.
func build(t *testing.T, dir string) (program, out string, err error) {
	t.Helper()
	// The flags for compiling are those of the Makefile's tests: the build is shared with them.
	b, err := command(t, dir, "build", "-pgo=off", "-ldflags=-s -w", "-mod=readonly", "-o", "program", ".").CombinedOutput()
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
