package federation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
	"github.com/sailplane-dev/sailplane/test/program"
	"github.com/sailplane-dev/sailplane/test/script"
)

// patience is how long anything may take before it counts as hanging.
const patience = 2 * time.Minute

func TestMain(m *testing.M) {
	if runtime.GOOS == "windows" {
		fmt.Fprintln(os.Stderr, "these tests stop processes as Unix does")
		return
	}
	os.Exit(program.Tests{M: m, Build: script.Build}.Run())
}

// built are the programs behind, which are built once: two tests must not write the same file.
var built = sync.OnceValues(func() (behind.Programs, error) {
	sailplane, err := exec.LookPath("sailplane")
	if err != nil {
		return behind.Programs{}, err
	}
	return behind.BuildPrograms(context.Background(), filepath.Dir(sailplane))
})

func programs(t *testing.T) behind.Programs {
	t.Helper()
	p, err := built()
	must(t, err)
	return p
}

func start(t *testing.T, name string, args ...string) *behind.Process {
	t.Helper()
	return launch(t, exec.Command(name, args...))
}

func launch(t *testing.T, cmd *exec.Cmd) *behind.Process {
	t.Helper()
	p, err := behind.Start(filepath.Join(t.TempDir(), "log"), cmd)
	must(t, err)
	ends(t, func() *behind.Process { return p })
	return p
}

// ends has a process end with the test.
func ends(t *testing.T, process func() *behind.Process) {
	t.Cleanup(func() {
		p := process()
		p.Kill()
		if t.Failed() {
			out := p.Text()
			t.Logf("%s wrote:\n%s", p, out[max(0, len(out)-4000):])
		}
	})
}

// front is a server with others behind it.
type front struct {
	*behind.Front
}

func serve(t *testing.T, args ...string) *front {
	t.Helper()
	f, err := behind.Serve(t.Context(), t.TempDir(), append([]string{"--storage", "memory"}, args...)...)
	must(t, err)
	ends(t, func() *behind.Process { return f.Process })
	return &front{f}
}

// kubectl runs it as the administrator, and looks for words in what it says.
func (f *front) kubectl(t *testing.T, stdin, args string, words ...string) string {
	t.Helper()
	out, err := f.Try(stdin, strings.Fields(args)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if !regexp.MustCompile(w).MatchString(out) {
			t.Errorf("kubectl %s: %q is missing in:\n%s", args, w, out)
		}
	}
	return out
}

// until waits for something to hold.
func until(t *testing.T, what string, holds func() error) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(20 * time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// port is one that was free a moment ago, for programs that do not tell theirs.
func port(t *testing.T) string {
	t.Helper()
	p, err := behind.Port()
	must(t, err)
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// account makes a service account with roles, and a kubeconfig of its own.
func (f *front) account(t *testing.T, name string, clusterRoles ...string) string {
	t.Helper()
	f.kubectl(t, "", "create serviceaccount -n kube-system "+name)
	for i, role := range clusterRoles {
		f.kubectl(t, "", fmt.Sprintf("create clusterrolebinding %s-%d --clusterrole=%s --serviceaccount=kube-system:%[1]s", name, i, role))
	}
	f.kubectl(t, "", fmt.Sprintf("create rolebinding -n kube-system %s --role=extension-apiserver-authentication-reader --serviceaccount=kube-system:%[1]s", name))
	token := strings.TrimSpace(f.kubectl(t, "", "create token -n kube-system "+name))
	admin, err := os.ReadFile(f.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name+".kubeconfig")
	if err := os.WriteFile(file, admin, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{"set-credentials " + name + " --token=" + token, "set-context --current --user=" + name} {
		if out, err := exec.Command("kubectl", append([]string{"--kubeconfig", file, "config"}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	return file
}
