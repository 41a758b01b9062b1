//go:build unix

package moving

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/test/program"
)

// start starts a server on a storage in a directory.
func start(t *testing.T, dir, storage string) (*program.Process, *kubernetes.Clientset) {
	t.Helper()
	p := program.Launch(t, exec.Command(sailplane(), "serve", "--listen", "127.0.0.1:0", "--data-dir", dir, "--storage", storage))
	must(t, p.AwaitReady())
	config, err := p.Config()
	must(t, err)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	return p, client
}

// export is what a server exports; "": of now.
func export(t *testing.T, p *program.Process, revision string) []byte {
	t.Helper()
	args := []string{"export", "--kubeconfig", p.Kubeconfig()}
	if revision != "" {
		args = append(args, "--revision", revision)
	}
	cmd := exec.CommandContext(t.Context(), sailplane(), args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &said)
	}
	return out
}

// TestBackupIsExport: what a backup has that was taken under 32 writers is, byte for byte, what the server exports of
// its revision; by way of a server on another engine, to which it is restored.
func TestBackupIsExport(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, client := start(t, filepath.Join(dir, "first"), "sqlite:"+filepath.Join(dir, "state.db"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	configMaps := client.CoreV1().ConfigMaps("default")
	var writers sync.WaitGroup
	for w := range 32 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				cm := &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%d-%d", w, i%20)}, BinaryData: map[string][]byte{"n": {0, 255, byte(i)}},
				}
				if _, err := configMaps.Create(ctx, cm, metav1.CreateOptions{}); err == nil {
					continue
				}
				_, _ = configMaps.Update(ctx, cm, metav1.UpdateOptions{}) // another one may have been deleted
				if i%3 == 0 {
					_ = configMaps.Delete(ctx, cm.Name, metav1.DeleteOptions{})
				}
			}
		})
	}
	await(t, client, 1000)
	saved := filepath.Join(dir, "a.backup")
	if out, err := run(t, "backup", "--kubeconfig", first.Kubeconfig(), saved); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	revision := revisionOf(t, saved)
	await(t, client, revision+200)
	want := export(t, first, strconv.FormatInt(revision, 10))
	cancel()
	writers.Wait()
	if now := export(t, first, ""); bytes.Equal(now, want) {
		t.Error("the server exports the same of now: nobody wrote")
	}
	must(t, first.Interrupt())

	to := "etcd:" + filepath.Join(dir, "etcd")
	if out, err := run(t, "restore", saved, "--to", to); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	second, _ := start(t, filepath.Join(dir, "second"), to)
	if got := export(t, second, ""); !bytes.Equal(got, want) {
		must(t, os.WriteFile(filepath.Join(dir, "want"), want, 0o600))
		must(t, os.WriteFile(filepath.Join(dir, "got"), got, 0o600))
		diff, _ := exec.CommandContext(t.Context(), "diff", filepath.Join(dir, "want"), filepath.Join(dir, "got")).Output()
		t.Errorf("%d bytes, want %d:\n%.2000s", len(got), len(want), diff)
	}
}

// await waits until a server is at a revision.
func await(t *testing.T, client *kubernetes.Clientset, revision int64) {
	t.Helper()
	must(t, wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return false, err
		}
		now, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
		return now >= revision, err
	}))
}

// revisionOf is the revision of a backup.
func revisionOf(t *testing.T, file string) int64 {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), sailplane(), "storage", "check", "--backup", file, "--output", "json").Output()
	must(t, err)
	var survey struct{ Info struct{ Revision int64 } }
	must(t, json.Unmarshal(out, &survey))
	return survey.Info.Revision
}
