package crash

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/program"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// limited is the server in a shell that limits the size of every file it
// writes, in blocks of 512 or 1024 bytes. To the server that is a disk with no room
// left: what goes beyond fails with EFBIG, which takes the way of ENOSPC.
func limited(blocks int, args []string) *exec.Cmd {
	script := fmt.Sprintf("trap '' XFSZ; ulimit -f %d; exec \"$0\" \"$@\"", blocks)
	return exec.Command("sh", append([]string{"-c", script, binary}, args...)...)
}

// TestFullDisk writes until the storage has no more room. Writes are refused
// and not acknowledged, reads go on, and nothing acknowledged is lost.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	storage := storages()["sqlite"](dir)
	p := program.Launch(t, limited(4096, serveArgs(dir, storage)))
	if err := p.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	cms, err := configMaps(p)
	if err != nil {
		t.Fatal(err)
	}
	acked, err := fill(cms, 64<<10)
	if err == nil {
		t.Fatalf("%d objects of 64 KiB were written, and the disk is not full", len(acked))
	}
	if reason := apierrors.ReasonForError(err); reason == metav1.StatusReasonConflict || reason == metav1.StatusReasonAlreadyExists {
		t.Errorf("a full disk is reported as %s: %v", reason, err)
	}
	t.Logf("after %d objects: %v", len(acked), err)
	list, err := cms.List(context.Background(), metav1.ListOptions{})
	if err != nil || len(list.Items) != len(acked) {
		t.Errorf("the server with a full disk lists %d objects, want %d: %v", len(list.Items), len(acked), err)
	}
	if err := p.Interrupt(); err != nil {
		t.Errorf("stop with a full disk: %v", err)
	}
	hasAll(t, dir, storage, acked)
}

// TestFullDiskEndsEtcd writes until the embedded etcd cannot go on: the server ends and
// says why, and starts again where there is room, with all that was acknowledged.
func TestFullDiskEndsEtcd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	storage := storages()["etcd"](dir)
	p := program.Launch(t, limited(150<<10, serveArgs(dir, storage))) // its log begins with 64 MiB
	if err := p.AwaitReady(); err != nil {
		t.Fatal(err)
	}
	cms, err := configMaps(p)
	if err != nil {
		t.Fatal(err)
	}
	acked, err := fill(cms, 1<<20)
	if err == nil {
		t.Fatalf("%d objects of 1 MiB were written, and the disk is not full", len(acked))
	}
	select {
	case <-p.Exited:
	case <-time.After(program.Patience):
		t.Fatalf("the server goes on, and writes end in %v: %s", err, p.Stderr())
	}
	text := p.Stderr()
	if code := p.Cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(text, dir) || !strings.Contains(text, "the disk is full: make room") {
		t.Errorf("the server ended with %v, want status 1, %s and the reason:\n%s", p.Cmd.ProcessState, dir, text)
	}
	t.Logf("after %d objects: %v\n%s", len(acked), err, text)
	hasAll(t, dir, storage, acked)
}

// fill writes ConfigMaps until one is refused, and returns those that were not.
func fill(cms corev1.ConfigMapInterface, size int) (acked []string, err error) {
	for i := range 400 {
		cm := &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("cm-%d", i)},
			Data:       map[string]string{"value": strings.Repeat("x", size)},
		}
		if _, err = cms.Create(context.Background(), cm, metav1.CreateOptions{}); err != nil {
			return acked, err
		}
		acked = append(acked, cm.Name)
	}
	return acked, nil
}

// hasAll starts a server where there is room, looks whether it has what was
// acknowledged, and writes.
func hasAll(t *testing.T, dir, storage string, acked []string) {
	t.Helper()
	again := serve(t, dir, storage)
	cms, err := configMaps(again)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range acked {
		if _, err := cms.Get(context.Background(), name, metav1.GetOptions{}); err != nil {
			t.Errorf("acknowledged: %v", err)
		}
	}
	if _, err := cms.Create(context.Background(), &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "room"}}, metav1.CreateOptions{}); err != nil {
		t.Errorf("with room again: %v", err)
	}
	if err := again.Interrupt(); err != nil {
		t.Error(err)
	}
}

// TestFullDiskAtStart starts servers where there is no room for what a storage needs at least.
func TestFullDiskAtStart(t *testing.T) {
	for name, storage := range storages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			text := fails(t, limited(16, serveArgs(dir, storage(dir))))
			if !strings.Contains(text, dir) {
				t.Errorf("stderr does not name %s", dir)
			}
			t.Logf("%s", text)
		})
	}
}
