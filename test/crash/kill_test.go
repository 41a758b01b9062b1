package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/program"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	rounds  = 10
	writers = 8
	names   = 6 // of each writer
)

// state is what a client knows of an object: a value, or that there is none.
type state struct {
	exists  bool
	value   string
	version uint64 // resource version of the write that was acknowledged; 0: unknown
}

// known is the last acknowledged state of an object, and that of the write
// which was never answered, if there is one.
type known struct {
	acked   state
	perhaps *state
}

// writer is a client that owns its objects.
type writer struct {
	id      int
	count   int // makes every value unique
	objects map[string]known
	highest uint64
	wrote   int
}

// TestKill kills a server under load, again and again on the same data. What
// was acknowledged is there after each restart, and resource versions never go
// backwards.
func TestKill(t *testing.T) {
	for name, storage := range storages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			all := make([]*writer, writers)
			for i := range all {
				all[i] = &writer{id: i, objects: map[string]known{}}
			}
			total, slowest := 0, time.Duration(0)
			for round := range rounds {
				begun := time.Now()
				p := serve(t, dir, storage(dir))
				slowest = max(slowest, time.Since(begun))
				check(t, p, round, all)
				total += writeAndKill(t, p, all)
				if t.Failed() {
					return
				}
			}
			p := serve(t, dir, storage(dir))
			check(t, p, rounds, all)
			if err := p.Interrupt(); err != nil {
				t.Error(err)
			}
			t.Logf("%d kills, %d writes acknowledged, slowest start %v", rounds, total, slowest.Round(time.Millisecond))
		})
	}
}

// writeAndKill has all writers write until the server is killed at a random
// moment, and returns how many writes were acknowledged.
func writeAndKill(t *testing.T, p *program.Process, all []*writer) int {
	t.Helper()
	var running sync.WaitGroup
	wrote := 0
	for _, w := range all {
		cms, err := configMaps(p)
		if err != nil {
			t.Fatal(err)
		}
		w.wrote = 0
		running.Go(func() {
			for w.write(t, cms) {
			}
		})
	}
	time.Sleep(time.Duration(20+rand.IntN(400)) * time.Millisecond)
	p.Kill()
	running.Wait()
	for _, w := range all {
		wrote += w.wrote
	}
	return wrote
}

// write does one random write and remembers what became of it. It returns
// false when the server does not answer any more.
func (w *writer) write(t *testing.T, cms corev1.ConfigMapInterface) bool {
	ctx, cancel := background()
	defer cancel()
	name := fmt.Sprintf("w%d-%d", w.id, rand.IntN(names))
	k := w.objects[name]
	w.count++
	next := state{exists: true, value: fmt.Sprintf("%d-%d", w.id, w.count)}
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": next.value}}
	var got *v1.ConfigMap
	var err error
	switch {
	case !k.acked.exists:
		got, err = cms.Create(ctx, cm, metav1.CreateOptions{})
	case rand.IntN(4) == 0:
		next = state{}
		err = cms.Delete(ctx, name, metav1.DeleteOptions{})
	default:
		got, err = cms.Update(ctx, cm, metav1.UpdateOptions{})
	}
	if err != nil {
		if reason := apierrors.ReasonForError(err); reason == metav1.StatusReasonNotFound || reason == metav1.StatusReasonAlreadyExists || reason == metav1.StatusReasonConflict {
			t.Errorf("%s: acknowledged was %+v: %v", name, k.acked, err)
		}
		w.objects[name] = known{acked: k.acked, perhaps: &next}
		return false
	}
	if got != nil {
		if next.version, err = strconv.ParseUint(got.ResourceVersion, 10, 64); err != nil {
			t.Error(err)
		}
		if next.version <= w.highest {
			t.Errorf("%s: resource version %d after %d", name, next.version, w.highest)
		}
		w.highest = max(w.highest, next.version)
	}
	w.objects[name] = known{acked: next}
	w.wrote++
	return true
}

// check compares what a server holds with what the writers know, and settles
// what they do not.
func check(t *testing.T, p *program.Process, round int, all []*writer) {
	t.Helper()
	cms, err := configMaps(p)
	if err != nil {
		t.Fatal(err)
	}
	list, err := cms.List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatalf("round %d: %v", round, err)
	}
	have := map[string]state{}
	for _, cm := range list.Items {
		version, err := strconv.ParseUint(cm.ResourceVersion, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		have[cm.Name] = state{exists: true, value: cm.Data["value"], version: version}
	}
	current, err := strconv.ParseUint(list.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	owned := map[string]bool{}
	for _, w := range all {
		if current < w.highest {
			t.Errorf("round %d: resource version %d, acknowledged was %d", round, current, w.highest)
		}
		for name, k := range w.objects {
			owned[name] = true
			got := have[name]
			if !got.is(k.acked) && (k.perhaps == nil || !got.is(*k.perhaps)) {
				t.Errorf("round %d: %s is %+v, acknowledged was %+v, and not answered %+v", round, name, got, k.acked, k.perhaps)
			}
			w.objects[name] = known{acked: got}
			w.highest = max(w.highest, got.version)
		}
	}
	for name := range have {
		if !owned[name] {
			t.Errorf("round %d: %s was never written", round, name)
		}
	}
}

// is says whether the state that was found is the one that was written.
func (s state) is(written state) bool {
	return s.exists == written.exists && s.value == written.value && (written.version == 0 || s.version == written.version)
}
