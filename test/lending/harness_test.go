package lending

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/lending/lent"
	"github.com/sailplane-dev/sailplane/test/program"
)

func TestMain(m *testing.M) {
	os.Exit(program.Tests{M: m, Build: func(ctx context.Context, dir string) error {
		if err := program.Build(ctx, "test", "./lending/lender", filepath.Join(dir, "lender")); err != nil {
			return err
		}
		return os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	}}.Run())
}

// patience is how long a lender may take to end.
const patience = time.Minute

// storages are those that a lender has.
func storages() []string { return []string{"memory", "sqlite", "etcd"} }

// lend runs a lender until the test ends.
func lend(t *testing.T) lent.Lender {
	t.Helper()
	cmd := exec.Command("lender", "-dir", t.TempDir())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	must(t, err)
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close() // it may have ended
		// What it waits for is in the log then.
		late := time.AfterFunc(patience, func() { _ = cmd.Process.Signal(syscall.SIGQUIT) })
		defer late.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the lender: %v", err)
		}
		_ = log.Close() // its writes are the lender's
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("the lender wrote:\n%s", last(text))
		}
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the lender has no address: %v", err)
	}
	return lent.Lender(strings.TrimSpace(url))
}

// last is the end of a long text.
func last(text []byte) string {
	const most = 8000
	if n := len(text) - most; n > 0 {
		return fmt.Sprintf("(%d bytes)... %s", n, text[n:])
	}
	return string(text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
