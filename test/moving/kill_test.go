//go:build unix

package moving

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/test/program"
)

const (
	// kills is how often each command is killed, and objects how many keys it moves.
	kills   = 8
	objects = 5000
)

// fill makes a SQLite file with objects, and returns its path.
func fill(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	b := sqlite.File{Path: path, UnsafeNoSync: true}.Open()
	must(t, b.Start(t.Context()))
	c, err := b.Client()
	must(t, err)
	for i := 0; i < objects; i += 100 {
		var ops []clientv3.Op
		for n := i; n < i+100; n++ {
			object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c-%05d","namespace":"default","uid":"u-%d"},"data":{"n":"%s"}}`,
				n, n, strings.Repeat(fmt.Sprint(n), 100))
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/configmaps/default/c-%05d", n), object))
		}
		_, err := c.Txn(t.Context()).Then(ops...).Commit()
		must(t, err)
	}
	_, err = c.Put(t.Context(), "/registry/namespaces/default",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"default","uid":"u"},"spec":{"finalizers":["kubernetes"]}}`)
	must(t, err)
	_ = c.Close()
	must(t, b.Stop(t.Context()))
	return path
}

// run runs the binary to its end.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sailplane(), args...).CombinedOutput()
	return string(out), err
}

// sum is what a storage or backup has, as a checksum that does not depend on revisions.
func sum(t *testing.T, args ...string) string {
	t.Helper()
	out, err := run(t, append([]string{"storage", "check", "--output", "json"}, args...)...)
	found := regexp.MustCompile(`"sha256": "([0-9a-f]{64})"`).FindStringSubmatch(out)
	if err != nil || found == nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return found[1]
}

// killed runs the binary and kills it at a random moment, within the time that it takes. It tells whether it had
// ended before.
func killed(t *testing.T, within time.Duration, args ...string) (ended bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rand.N(within))
	defer cancel()
	cmd := exec.CommandContext(ctx, sailplane(), args...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run() // which kills it when its time is over
	if err != nil && ctx.Err() == nil {
		t.Fatalf("%v: %v\n%s", args, err, &said)
	}
	return err == nil
}

// TestKilledBackup: a backup that is killed leaves what was there before.
func TestKilledBackup(t *testing.T) {
	t.Parallel()
	from, file := "sqlite:"+fill(t), filepath.Join(t.TempDir(), "a.backup")
	begun := time.Now()
	out, err := run(t, "backup", "--storage", from, file)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	took, want := time.Since(begun), sum(t, "--backup", file)
	for range kills {
		killed(t, took, "backup", "--storage", from, file)
		if got := sum(t, "--backup", file); got != want {
			t.Fatalf("the backup has %s, want %s", got, want)
		}
	}
	if out, err := run(t, "backup", "--storage", from, file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if all, err := os.ReadDir(filepath.Dir(file)); err != nil || len(all) != 1 {
		t.Errorf("%v: there is %v, want the backup alone", err, all)
	}
}

// TestKilledMove: a copy, or a restore, that is killed leaves nothing that a server uses, unless it had not begun
// or was complete; and the same command completes it.
func TestKilledMove(t *testing.T) {
	t.Parallel()
	saved := filepath.Join(t.TempDir(), "a.backup")
	if out, err := run(t, "backup", "--storage", "sqlite:"+fill(t), saved); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := sum(t, "--backup", saved)
	for name, command := range map[string][]string{
		"copy to etcd": {"storage", "copy", "--from", "sqlite:" + fill(t), "--to", "etcd:"}, "restore to SQLite": {"restore", saved, "--to", "sqlite:"},
		"copy to SQLite": {"storage", "copy", "--from", "sqlite:" + fill(t), "--to", "sqlite:"}, "restore to etcd": {"restore", saved, "--to", "etcd:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := func(path string) []string {
				all := append([]string{}, command...)
				all[len(all)-1] += path
				return all
			}
			begun := time.Now()
			if out, err := run(t, to(filepath.Join(t.TempDir(), "whole"))...); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			took, continued := time.Since(begun), 0
			for n := range kills {
				dir := t.TempDir()
				args := to(filepath.Join(dir, "part"))
				place := args[len(args)-1]
				for range 3 { // killed while it continues, too
					if killed(t, took, args...) {
						break
					}
				}
				if serves(t, dir, place) {
					continue // nothing was there, or everything
				}
				continued++
				if out, err := run(t, args...); err != nil {
					t.Fatalf("round %d: continued: %v\n%s", n, err, out)
				}
				if got := sum(t, "--storage", place); got != want {
					t.Fatalf("round %d: it has %s, want %s", n, got, want)
				}
				if !serves(t, dir, place) {
					t.Fatalf("round %d: no server starts on what is complete", n)
				}
			}
			t.Logf("%d of %d were incomplete, and continued", continued, kills)
		})
	}
}

// serves tries to start a server on a storage. If it does, it has all objects or none.
func serves(t *testing.T, dir, storage string) bool {
	t.Helper()
	cmd := exec.Command(sailplane(), "serve", "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"), "--storage", storage)
	p := program.Launch(t, cmd)
	if err := p.AwaitReady(); err != nil {
		if !strings.Contains(p.Stderr(), "run the same command again to finish it") {
			t.Fatalf("a server does not start, and does not say why: %v\n%s", err, p.Stderr())
		}
		return false
	}
	config, err := p.Config()
	must(t, err)
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if n := len(list.Items); n != 0 && n != objects {
		t.Errorf("a server has %d objects, want all %d or none", n, objects)
	}
	must(t, p.Interrupt())
	return true
}
