//go:build unix

package replicas

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/sailplane-dev/sailplane/test/program"
)

const rollingWriters = 32

// TestRollingRestart restarts one server after the other, under load. No write fails, and a watch that goes
// on where it ended has every event, once and in order.
func TestRollingRestart(t *testing.T) {
	onEach(t, func(t *testing.T, f *fleet) {
		var all []*server
		for n := range 3 {
			all = append(all, f.launch(t, strconv.Itoa(n)))
		}
		ready(t, all...)
		newRolling(t, all).restart(t, f, all)
	})
}

// before is a commit of the version before, whose servers this one replaces. To compile it takes minutes.
var before = flag.String("before", "", "commit of the version before, for TestRollingUpgrade; `make rolling` gives it")

// TestRollingUpgrade: servers of the version before are replaced by this one, as servers are restarted.
func TestRollingUpgrade(t *testing.T) {
	if *before == "" {
		t.Skip("it compiles another version: run make rolling BEFORE=COMMIT")
	}
	old, err := program.SailplaneOf(t.Context(), *before)
	must(t, err)
	onEach(t, func(t *testing.T, f *fleet) {
		var all []*server
		for n := range 3 {
			all = append(all, f.launchProgram(t, old, strconv.Itoa(n)))
		}
		ready(t, all...)
		newRolling(t, all).restart(t, f, all)
	})
}

// rolling is load on servers that are restarted.
type rolling struct {
	balancer *balancer
	client   *server // by way of the balancer
	watched  chan error
	stop     context.CancelFunc
	writers  sync.WaitGroup

	mu      sync.Mutex
	written map[string]string // versions of objects that were acknowledged
	deleted map[string]bool
	seen    map[string]bool // versions
	gone    map[string]bool
}

// newRolling begins to write and to watch.
func newRolling(t *testing.T, servers []*server) *rolling {
	t.Helper()
	r := &rolling{
		balancer: newBalancer(t), client: &server{}, watched: make(chan error, 1),
		written: map[string]string{}, deleted: map[string]bool{}, seen: map[string]bool{}, gone: map[string]bool{},
	}
	for _, s := range servers {
		r.balancer.add(strings.TrimPrefix(s.config.Host, "https://"))
	}
	config := rest.CopyConfig(servers[0].config)
	config.Host = "https://" + r.balancer.listener.Addr().String()
	config.QPS, config.Burst = 500, 2*rollingWriters // of all together, which leaves servers time to start
	r.client.use(t, config)
	within(t, time.Minute, "that the balancer has servers", func(ctx context.Context) bool {
		_, err := r.client.client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
	maps := r.client.client.CoreV1().ConfigMaps("default")
	list, err := maps.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return maps.Watch(ctx, o) },
	})
	must(t, err)
	t.Cleanup(w.Stop)
	go func() { r.watched <- r.watch(w.ResultChan()) }()
	for n := range rollingWriters {
		r.writers.Go(func() { r.write(ctx, t, n) })
	}
	return r
}

// count is how many writes were acknowledged.
func (r *rolling) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.written) + len(r.deleted)
}

// restart replaces servers by new ones, one after the other, and ends the load.
func (r *rolling) restart(t *testing.T, f *fleet, all []*server) {
	t.Helper()
	for n, s := range all {
		must(t, s.Interrupt())
		again := f.launch(t, strconv.Itoa(n))
		ready(t, again)
		r.balancer.add(strings.TrimPrefix(again.config.Host, "https://"))
		before := r.count()
		within(t, time.Minute, "that clients write on", func(context.Context) bool { return r.count() >= before+4*rollingWriters })
	}
	r.end(t)
}

// write creates, updates and deletes objects until the context ends.
func (r *rolling) write(ctx context.Context, t *testing.T, writer int) {
	t.Helper()
	maps := r.client.client.CoreV1().ConfigMaps("default")
	for n := 0; ctx.Err() == nil; n++ {
		name := fmt.Sprintf("roll-%d-%d", writer, n)
		object, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err == nil {
			r.acknowledged(object)
			object.Data = map[string]string{"a": "b"}
			object, err = maps.Update(t.Context(), object, metav1.UpdateOptions{})
		}
		if err == nil {
			r.acknowledged(object)
			err = maps.Delete(t.Context(), name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Errorf("a client that retries what client-go retries got %v", err)
			return
		}
		r.mu.Lock()
		r.deleted[name] = true
		r.mu.Unlock()
	}
}

func (r *rolling) acknowledged(object *corev1.ConfigMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written[object.ResourceVersion] = object.Name
}

// watch notes events until that of the last object.
func (r *rolling) watch(events <-chan watch.Event) error {
	last := uint64(0)
	for e := range events {
		object, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			return fmt.Errorf("the watch ends with %v", e.Object)
		}
		version, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
		if err != nil || version <= last {
			return fmt.Errorf("version %s comes after %d", object.ResourceVersion, last)
		}
		last = version
		if object.Name == "last" {
			return nil
		}
		r.mu.Lock()
		if r.seen[object.ResourceVersion] = true; e.Type == watch.Deleted {
			r.gone[object.Name] = true
		}
		r.mu.Unlock()
	}
	return fmt.Errorf("the watch has ended")
}

// end ends the load, and compares what was written with what the watch has.
func (r *rolling) end(t *testing.T) {
	t.Helper()
	r.stop()
	r.writers.Wait()
	_, err := r.client.client.CoreV1().ConfigMaps("default").
		Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{})
	must(t, err)
	select {
	case err := <-r.watched:
		must(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the watch has not the last event within a minute")
	}
	lost := 0
	for version := range r.written {
		if !r.seen[version] {
			lost++
		}
	}
	for name := range r.deleted {
		if !r.gone[name] {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("of %d writes the watch has lost %d", len(r.written)+len(r.deleted), lost)
	}
	if len(r.deleted) < rollingWriters {
		t.Errorf("only %d objects were written", len(r.deleted))
	}
	t.Logf("%d writes", len(r.written)+len(r.deleted))
}
