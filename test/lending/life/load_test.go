//go:build unix

package life

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

const (
	// attempt is how long one request may take, and pace the time between two of a writer.
	attempt, pace = 10 * time.Second, 60 * time.Millisecond
	// enough is how many writes of each writer tell that a server works.
	enough = 6
)

// load is writers that write until they are ended, each write until it is acknowledged.
type load struct {
	end     func()
	writers []*writer
}

// writer is one that nobody else writes the objects of.
type writer struct {
	name   string
	client dynamic.ResourceInterface

	mu           sync.Mutex
	acknowledged map[string][]sight
	n            int
	failed       []error
	err          error
}

// write begins writers, one for each client.
func write(t *testing.T, clients map[string]*rest.Config) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	l := &load{end: func() { cancel(); running.Wait() }}
	for name, config := range clients {
		w := &writer{name: name, client: flunders(t, config), acknowledged: map[string][]sight{}}
		l.writers = append(l.writers, w)
		running.Go(func() {
			if err := w.run(ctx); err != nil {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.err = err
			}
		})
	}
	t.Cleanup(l.end)
	return l
}

// run creates objects and updates them, and counts in one of its own.
func (w *writer) run(ctx context.Context) error {
	counter := "counter-" + w.name
	if err := w.write(counter, "0", true); err != nil {
		return err
	}
	for i := 1; ctx.Err() == nil; i++ {
		object := fmt.Sprintf("object-%s-%d", w.name, i)
		for _, step := range []struct {
			name, value string
			create      bool
		}{{object, "0", true}, {object, "1", false}, {counter, strconv.Itoa(i), false}} {
			_ = behind.Pause(ctx, max(pace, *lasting/4000)) // the last ones are written at once
			if err := w.write(step.name, step.value, step.create); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes a value until that is acknowledged, also when the writers are to end.
func (w *writer) write(name, value string, create bool) error {
	for begun := time.Now(); ; {
		err := w.try(name, value, create)
		if err == nil {
			return nil
		}
		if time.Since(begun) > patience {
			return err
		}
		_ = behind.Pause(context.Background(), 50*time.Millisecond)
	}
}

// try writes a value once, and notes how that went.
func (w *writer) try(name, value string, create bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	o, err := w.request(ctx, name, value, create)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		err = fmt.Errorf("write %s to %s: %w", value, name, err)
		w.failed = append(w.failed, err)
		return err
	}
	w.acknowledged[name] = append(w.acknowledged[name], sighted(o))
	w.n++
	return nil
}

// request asks for a write. What is there already has been written before, though nobody said so.
func (w *writer) request(ctx context.Context, name, value string, create bool) (*unstructured.Unstructured, error) {
	if !create {
		patch := fmt.Appendf(nil, `{"spec": {"reference": %q}}`, value)
		return w.client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	o, err := w.client.Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": wardle + "/v1alpha1", "kind": "Flunder", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"reference": value},
	}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return w.client.Get(ctx, name, metav1.GetOptions{})
	}
	return o, err
}

func (w *writer) state() (n int, failed []error, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n, w.failed, w.err
}

// await waits until every writer has written more.
func (l *load) await(t *testing.T) {
	t.Helper()
	for _, w := range l.writers {
		before, _, _ := w.state()
		until(t, w.name+" writes", func(context.Context) error {
			n, failed, err := w.state()
			if err != nil {
				t.Fatal(err)
			}
			if n < before+enough {
				return fmt.Errorf("%d writes, want %d; errors so far: %v", n, before+enough, failed[max(0, len(failed)-3):])
			}
			return nil
		})
	}
}

// failures are all writes that were not acknowledged.
func (l *load) failures() (all []error) {
	for _, w := range l.writers {
		_, failed, _ := w.state()
		all = append(all, failed...)
	}
	return all
}

// acknowledged are the writes that were, by object.
func (l *load) acknowledged() map[string][]sight {
	all := map[string][]sight{}
	for _, w := range l.writers {
		w.mu.Lock()
		maps.Copy(all, w.acknowledged)
		w.mu.Unlock()
	}
	return all
}

// check ends the writers, and compares a list to what was acknowledged.
func (l *load) check(t *testing.T, config *rest.Config) {
	t.Helper()
	l.end()
	want, n := map[string]string{}, 0
	for name, all := range l.acknowledged() {
		want[name] = all[len(all)-1].value
		n += len(all)
	}
	got, _ := list(t.Context(), t, config)
	maps.DeleteFunc(got, func(name, _ string) bool { return want[name] == "" })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects (-acknowledged +list):\n%s", diff)
	}
	t.Logf("%d writes of %d objects were acknowledged, %d failed", n, len(want), len(l.failures()))
}
