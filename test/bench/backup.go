package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	backupName  = "backup"
	phaseBackup = "Backups of a running server"
	// pacedRate is how many writes a second are made for so long, half of them creates.
	pacedRate, pacedSeconds = 100, 10
	// calm is how long a server is left alone before, so that it gives back the memory that the last work needed.
	calm = 10 * time.Second
)

func backupArgs(dir, file string) []string { return []string{"backup", "--data-dir=" + dir, file} }

// measureBackup takes backups of a server that is written to, and compares these writes with those before.
func measureBackup(ctx context.Context, l *lab, t target) (err error) {
	on, ok := t.(mover)
	if !ok || !on.moves() {
		return nil
	}
	dir, err := l.fresh()
	if err != nil {
		return err
	}
	v, err := on.vacant(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.stop()) }()
	s, err := v.server.start(ctx, dir, "start")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	b := &backedUp{lab: l, server: s, dir: dir}
	if b.client, err = s.clientset(l.contentType()); err != nil {
		return err
	}
	if err := b.fill(ctx); err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	if err := v.analyze(ctx); err != nil {
		return fmt.Errorf("analyze: %w", err)
	}
	return b.compare(ctx)
}

// backedUp is a server of which backups are taken.
type backedUp struct {
	*lab

	server *server
	dir    string
	client *kubernetes.Clientset
	paces  int
}

func (b *backedUp) object(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": realistic()}}
}

func (b *backedUp) create(ctx context.Context, client *kubernetes.Clientset, name string) error {
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, b.object(name), metav1.CreateOptions{FieldManager: manager})
	return err
}

func (b *backedUp) update(ctx context.Context, client *kubernetes.Clientset, name string) error {
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Update(ctx, b.object(name), metav1.UpdateOptions{FieldManager: manager})
	return err
}

// fill creates the objects, by many clients.
func (b *backedUp) fill(ctx context.Context) error {
	clients, err := b.server.clientsets(manyClients, b.contentType())
	if err != nil {
		return err
	}
	_, err = repeat(ctx, manyClients, b.moved, func(ctx context.Context, client, i int) error {
		return b.create(ctx, clients[client], movedName(i))
	})
	return err
}

// compare writes without a backup, then while backups are taken.
func (b *backedUp) compare(ctx context.Context) error {
	if err := pause(ctx, calm); err != nil {
		return err
	}
	var alone, beside []span
	without, err := whilst(b.server.processes[0], func() (err error) {
		return b.server.phase("writes", func() error {
			alone, err = b.paced(ctx)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("writes without a backup: %w", err)
	}
	if err := pause(ctx, calm); err != nil {
		return err
	}
	var taken []backupTaken
	with, err := whilst(b.server.processes[0], func() (err error) {
		return b.server.phase("backups", func() error {
			beside, taken, err = b.both(ctx)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("writes during backups: %w", err)
	}
	beside = during(beside, taken)
	if len(beside) == 0 {
		return errors.New("no write was made while a backup was taken")
	}
	b.report(durations(alone), durations(beside), taken)
	b.add("anonymous memory of the server at its peak, with writes alone, MiB", mib(without.anonymous))
	b.add("anonymous memory of the server at its peak, with backups too, MiB", mib(with.anonymous))
	b.add("what backups add to that, MiB", mib(with.anonymous-without.anonymous))
	return nil
}

// add adds a figure.
func (b *backedUp) add(name string, value float64) {
	b.results.add(phaseBackup, b.movedOf("backup")+": "+name, value)
}

func (b *backedUp) report(alone, beside []time.Duration, taken []backupTaken) {
	var most footprint
	var took, cpu []float64
	for _, each := range taken {
		took, cpu = append(took, each.wall.Seconds()), append(cpu, each.cpu.Seconds())
		most.anonymous, most.resident = max(most.anonymous, each.anonymous), max(most.resident, each.resident)
	}
	b.add("s", quantile(took, 0.5))
	b.add("MiB", mib(taken[len(taken)-1].bytes))
	b.add("CPU s of the command", quantile(cpu, 0.5))
	b.footprints(phaseBackup, b.movedOf("backup"), most)
	row := fmt.Sprintf("%s: %d writes a second", b.movedOf("backup"), pacedRate)
	b.results.latencies(phaseBackup, row+" without", alone)
	b.results.latencies(phaseBackup, row+" while one is taken", beside)
	b.add("p99 of writes while one is taken, times that without", float64(quantile(beside, 0.99))/float64(quantile(alone, 0.99)))
}

// span is from one moment to another one.
type span struct{ begun, ended time.Time }

func durations(spans []span) []time.Duration {
	var all []time.Duration
	for _, each := range spans {
		all = append(all, each.ended.Sub(each.begun))
	}
	return all
}

// during returns the spans in which a backup was taken for some of the time.
func during(spans []span, taken []backupTaken) []span {
	var found []span
	for _, each := range spans {
		for _, b := range taken {
			if each.begun.Before(b.ended) && b.begun.Before(each.ended) {
				found = append(found, each)
				break
			}
		}
	}
	return found
}

// paced makes each write at its time, whether those before it are answered or not, and returns from when to when each
// was made. It creates an object and updates one of those that were there before, in turns.
func (b *backedUp) paced(ctx context.Context) ([]span, error) {
	b.paces++
	name := fmt.Sprintf("paced-%d", b.paces)
	spans := make([]span, pacedRate*pacedSeconds)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	begun := time.Now()
	for i := range spans {
		due := begun.Add(time.Duration(i) * time.Second / pacedRate)
		if pause(ctx, time.Until(due)) != nil {
			break
		}
		all.Go(func() {
			var err error
			if i%2 == 0 {
				err = b.create(ctx, b.client, fmt.Sprintf("%s-%d", name, i))
			} else {
				err = b.update(ctx, b.client, movedName(i*b.moved/len(spans)))
			}
			if err != nil {
				cancel(fmt.Errorf("write %d: %w", i, err))
			}
			spans[i] = span{due, time.Now()}
		})
	}
	all.Wait()
	return spans, context.Cause(ctx)
}

// backupTaken is one of those that were taken.
type backupTaken struct {
	span
	effort

	bytes float64
}

// both writes, and takes one backup after the other until all is written.
func (b *backedUp) both(ctx context.Context) (spans []span, taken []backupTaken, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	written, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		var err error
		if taken, err = b.take(ctx, written); err != nil {
			cancel(err)
		}
	}()
	spans, err = b.paced(ctx)
	close(written)
	<-ended
	if err == nil {
		err = context.Cause(ctx) // of the last backup
	}
	return spans, taken, err
}

// take takes backups, at least one, until all is written.
func (b *backedUp) take(ctx context.Context, written <-chan struct{}) ([]backupTaken, error) {
	file := filepath.Join(b.dir, "server.backup")
	for all := []backupTaken(nil); ; {
		begun := time.Now()
		e, err := b.watched(ctx, backupArgs(b.dir, file)...)
		if err != nil {
			return nil, err
		}
		stat, err := os.Stat(file)
		if err != nil {
			return nil, err
		}
		all = append(all, backupTaken{span{begun, time.Now()}, e, float64(stat.Size())})
		select {
		case <-written:
			return all, nil
		default:
		}
	}
}
