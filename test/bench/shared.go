//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/test/program"
)

const (
	phaseShared = "Servers on one storage"
	// replicas are how many servers share the reads.
	replicas = 3
	// readsPerWrite is how often what was written is read: a get takes a fraction of the time of a create.
	readsPerWrite = 4
	// sharedRate is how many writes a second are followed from one server to another one.
	sharedRate, sharedSeconds = 100, 10
	sharedNamespace           = "shared"
	sharedPath                = "/api/v1/namespaces/" + sharedNamespace + "/configmaps"
)

// measureShared measures what two and three servers on one storage do together.
func measureShared(ctx context.Context, l *lab, t target) error {
	servers, are := t.(*shared)
	if !are {
		return nil
	}
	for _, n := range l.fills {
		if err := servers.measure(ctx, l, n); err != nil {
			return fmt.Errorf("%d objects: %w", n, err)
		}
	}
	return nil
}

// fleet is servers on one storage.
type fleet struct {
	lab     *lab
	target  *shared
	objects int // that were there before
	store   *store
	servers []*server
	loads   int
}

func (t *shared) measure(ctx context.Context, l *lab, objects int) (err error) {
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	f := &fleet{lab: l, target: t, objects: objects}
	if f.store, err = t.open(ctx, dir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.join(ctx); err != nil {
		return err
	}
	if err := fillAnew(ctx, f.servers[0], listed, objects); err != nil {
		return err
	}
	if err := t.analyze(ctx, f.store); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	one, err := f.write(ctx, 1)
	if err != nil {
		return err
	}
	alone, err := f.read(ctx, 1)
	if err != nil {
		return err
	}
	for len(f.servers) < replicas {
		if err := f.join(ctx); err != nil {
			return err
		}
		if len(f.servers) != 2 {
			continue
		}
		two, err := f.write(ctx, 2)
		if err != nil {
			return err
		}
		f.add("writes of two servers, as a part of one's", two/one)
		if err := f.follow(ctx); err != nil {
			return err
		}
	}
	together, err := f.read(ctx, replicas)
	if err != nil {
		return err
	}
	f.add(fmt.Sprintf("CPU of a read on %d servers, as a part of one's", replicas), together/alone)
	return nil
}

// add adds a figure.
func (f *fleet) add(name string, value float64) { f.lab.results.add(phaseShared, f.row(name), value) }

// row is the name of a figure, with what it was measured on.
func (f *fleet) row(name string) string { return fmt.Sprintf("%d objects: %s", f.objects, name) }

// stop stops the servers and then the storage.
func (f *fleet) stop() error {
	var errs []error
	for _, s := range f.servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(append(errs, f.store.stop())...)
}

// join starts another server, and has it answer requests once it has done what it does in the background after a
// start.
func (f *fleet) join(ctx context.Context) error {
	dir, err := f.lab.fresh()
	if err != nil {
		return err
	}
	s, err := f.target.join(ctx, f.store, dir)
	if err != nil {
		return fmt.Errorf("server %d: %w", len(f.servers)+1, err)
	}
	f.servers = append(f.servers, s)
	if err := pause(ctx, settle); err != nil {
		return err
	}
	clients, err := s.clientsets(manyClients, f.lab.contentType())
	if err != nil {
		return err
	}
	n := f.lab.requests
	warm := &configMaps{clients: clients, prefix: fmt.Sprintf("warm-%d", len(f.servers)), objects: make([]*corev1.ConfigMap, n)}
	for _, do := range []func(context.Context, int, int) error{warm.create, warm.get} {
		if _, err := repeat(ctx, manyClients, n, do); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	return nil
}

// used is what was used so far, by servers and by their storage.
func (f *fleet) used() (servers, storage time.Duration, err error) {
	for _, s := range f.servers {
		t, err := s.cpu()
		if err != nil {
			return 0, 0, err
		}
		servers += t
	}
	for _, p := range f.store.processes {
		t, err := program.TreeCPUTime(p.cmd.Process.Pid)
		if err != nil {
			return 0, 0, err
		}
		storage += t
	}
	return servers, storage, nil
}

// write creates objects on the first servers and returns how many a second.
func (f *fleet) write(ctx context.Context, n int) (perSecond float64, err error) {
	c, err := f.clients(n)
	if err != nil {
		return 0, err
	}
	perSecond, _, err = f.load(ctx, fmt.Sprintf("create on %s", count(n)), f.lab.requests, c.create)
	return perSecond, err
}

// read reads what was written on the first servers, and returns the CPU s of 1,000 reads.
func (f *fleet) read(ctx context.Context, n int) (cpu float64, err error) {
	c, err := f.clients(n)
	if err != nil {
		return 0, err
	}
	c.prefix = "load-1" // of the first writes
	again := func(ctx context.Context, client, i int) error { return c.get(ctx, client, i%f.lab.requests) }
	_, cpu, err = f.load(ctx, fmt.Sprintf("get on %s", count(n)), readsPerWrite*f.lab.requests, again)
	return cpu, err
}

func count(n int) string {
	return map[int]string{1: "one server", 2: "two servers", 3: "three servers"}[n]
}

// clients are those of the first servers, each with as many as the next one.
func (f *fleet) clients(n int) (*configMaps, error) {
	f.loads++
	c := &configMaps{prefix: fmt.Sprintf("load-%d", f.loads), objects: make([]*corev1.ConfigMap, f.lab.requests)}
	for i := range manyClients {
		client, err := f.servers[i%n].clientset(f.lab.contentType())
		if err != nil {
			return nil, err
		}
		c.clients = append(c.clients, client)
	}
	return c, nil
}

// load makes n requests with all clients, and returns how many of them a second and the CPU s of 1,000.
func (f *fleet) load(
	ctx context.Context, what string, n int, do func(ctx context.Context, client, i int) error,
) (perSecond, cpu float64, err error) {
	servers, storage, err := f.used()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	took, err := repeat(ctx, manyClients, n, do)
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", what, err)
	}
	perSecond = float64(n) / time.Since(begun).Seconds()
	afterServers, afterStorage, err := f.used()
	if err != nil {
		return 0, 0, err
	}
	ofServers, ofStorage := (afterServers-servers).Seconds()*1000/float64(n), (afterStorage-storage).Seconds()*1000/float64(n)
	f.add(what+": per second", perSecond)
	f.add(what+": CPU s per 1,000, all", ofServers+ofStorage)
	f.add(what+": CPU s per 1,000, servers", ofServers)
	f.add(what+": CPU s per 1,000, storage", ofStorage)
	f.lab.results.latencies(phaseShared, f.row(what), took)
	return perSecond, ofServers + ofStorage, nil
}

// follow measures how long after a write on the first server begins a watch on the second one has its event.
func (f *fleet) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lateBy+sharedSeconds*time.Second, errors.New("the watch did not have every write in time"))
	defer cancel()
	writer, err := f.servers[0].clientset("")
	if err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sharedNamespace}}
	if _, err := writer.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	w := writes{watched: watched{path: sharedPath, from: "0", write: createShared}, count: sharedRate * sharedSeconds, perSecond: sharedRate}
	watchers := make([]*watcher, 2)
	var reading sync.WaitGroup
	defer func() { cancel(); reading.Wait() }()
	for i := range watchers {
		client, err := f.servers[i].clientset("")
		if err != nil {
			return err
		}
		each, err := w.watch(ctx, client, w.count) // its stream ends with the context
		if err != nil {
			return err
		}
		watchers[i] = each
		reading.Go(func() { each.err = each.read() })
	}
	if err := w.steadily(ctx, f.servers[0]); err != nil {
		return err
	}
	reading.Wait()
	for i, where := range []string{"where it was written", "on another server"} {
		if watchers[i].err != nil {
			return errors.Join(watchers[i].err, context.Cause(ctx))
		}
		f.lab.results.latencies(phaseShared, f.row("from write to event "+where), watchers[i].delays)
	}
	return nil
}

func createShared(ctx context.Context, client *kubernetes.Clientset, i int, moment string) error {
	_, err := client.CoreV1().ConfigMaps(sharedNamespace).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "followed-" + strconv.Itoa(i)}, Data: map[string]string{sent: moment},
	}, metav1.CreateOptions{})
	return err
}
