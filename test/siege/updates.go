package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// series are updates of a few objects, one after the other.
type series struct {
	title   string
	objects int
	size    int // bytes of each
	updates int
	// after is what the process may have when they are over, peak what it may have in
	// between, in MiB; 0 is not asked for.
	after, peak float64
}

// serieses are what the past of objects is measured with: it has to take no more memory, however long it is.
func (o options) serieses() []series {
	if o.updates == 0 {
		return nil
	}
	return []series{
		{"updates of 1 KiB", 100, 1 << 10, o.updates, 250, 0},
		{"updates of 1 MiB", 4, 1000 << 10, max(1, o.updates/200), 0, 1024},
	}
}

// grown is what a series leaves.
type grown struct {
	series
	storage       string
	took          time.Duration
	before, after resident
}

// grow starts a server, and has its administrator, whom no limit of users meets, make the updates.
func (o options) grow(ctx context.Context, dir, storage string, of series) (g grown, err error) {
	s, err := o.start(ctx, dir, storage)
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	config, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		return g, err
	}
	config.QPS = -1
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		return g, err
	}
	g = grown{series: of, storage: storage}
	if g.before, err = s.memory(); err != nil {
		return g, err
	}
	begun := time.Now()
	if err := of.run(ctx, admin); err != nil {
		return g, errors.Join(err, s.ended())
	}
	g.took = time.Since(begun)
	select {
	case <-time.After(o.settle):
	case <-ctx.Done():
	}
	g.after, err = s.memory()
	return g, err
}

// run creates the objects and updates them, each by one client at a time.
func (of series) run(ctx context.Context, admin kubernetes.Interface) error {
	const clients = 8
	objects := admin.CoreV1().ConfigMaps("default")
	object := func(n int64) *corev1.ConfigMap {
		return &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("updated-", n%int64(of.objects))},
			Data:       map[string]string{"n": fmt.Sprint(n), "a": strings.Repeat("a", of.size)},
		}
	}
	for n := range int64(of.objects) {
		if _, err := objects.Create(ctx, object(n), metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	// A watch, so that the watch cache is there and follows.
	watch, err := objects.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	defer watch.Stop()
	go func() {
		for range watch.ResultChan() { // what comes is of no interest
		}
	}()
	var next atomic.Int64
	var working sync.WaitGroup
	errs := [clients]error{}
	for i := range clients {
		working.Go(func() {
			for n := next.Add(1); n <= int64(of.updates) && errs[i] == nil; n = next.Add(1) {
				_, errs[i] = objects.Update(ctx, object(n), metav1.UpdateOptions{})
			}
		})
	}
	working.Wait()
	return errors.Join(errs[:]...)
}

// faults are the goals that it misses.
func (g grown) faults() []string {
	var all []string
	if g.series.after > 0 && mib(g.after.now) > g.series.after {
		all = append(all, "memory afterwards")
	}
	if g.peak > 0 && mib(g.after.peak) > g.peak {
		all = append(all, "memory at the peak")
	}
	return all
}

func mib(bytes float64) float64 { return bytes / (1 << 20) }

// line is a row of the table.
func (g grown) line() string {
	verdict := "holds"
	if faults := g.faults(); len(faults) > 0 {
		verdict = "misses: " + strings.Join(faults, ", ")
	}
	return fmt.Sprintf("| %d %s | %s | %.0f | %.0f | %.0f | %.0f | %s |", g.updates, g.title, g.storage,
		g.took.Seconds(), mib(g.before.now), mib(g.after.peak), mib(g.after.now), verdict)
}

// grownTable is Markdown.
func grownTable(all []grown) string {
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nUpdates of the administrator: seconds, and MiB that are resident.\n\n" +
		"| updates | storage | time | before | peak | after | goal |\n|---|---|---|---|---|---|---|\n")
	for _, g := range all {
		b.WriteString(g.line() + "\n")
	}
	return b.String()
}

func missed(all []grown) error {
	var errs []error
	for _, g := range all {
		if faults := g.faults(); len(faults) > 0 {
			errs = append(errs, fmt.Errorf("%s on %s miss their goal: %s", g.title, g.storage, strings.Join(faults, ", ")))
		}
	}
	return errors.Join(errs...)
}
