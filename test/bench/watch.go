package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	phaseWatch = "Watches"
	// watchersPerClient share a connection, as the informers of a program do.
	watchersPerClient = 10
	watchWriters      = 8
	// sent is the key of the moment an object was written.
	sent = "sent"
	// lateBy is how long after the last write its events are waited for.
	lateBy = 30 * time.Second
)

func measureWatch(ctx context.Context, l *lab, t target) error {
	for _, n := range l.watchers {
		err := with(ctx, l, t, func(s *server) error { return fanOut(ctx, l, s, n) })
		if err != nil {
			return fmt.Errorf("%d watchers: %w", n, err)
		}
	}
	return nil
}

func watchRow(watchers int) string {
	return fmt.Sprintf("watch events to %d watchers: CPU s per 100,000", watchers)
}

// fanOut measures watches of ConfigMaps.
func fanOut(ctx context.Context, l *lab, s *server, n int) error {
	cpu, delays, err := watched{path: configMapsPath, from: "0", write: createConfigMap}.fanOut(ctx, l, s, n)
	if err != nil {
		return err
	}
	l.results.add(phaseWatch, watchRow(n), cpu)
	l.results.latencies(phaseWatch, fmt.Sprintf("watch events to %d watchers, from write to event", n), delays)
	return nil
}

// watched is what watchers watch, and how it is changed.
type watched struct {
	path string
	// from is the resource version to watch from. What there is at "0" has no moment.
	from string
	// write makes a change, with the moment in it.
	write func(ctx context.Context, client *kubernetes.Clientset, i int, moment string) error
}

// fanOut has many watchers see writes that come at a steady rate, and measures
// from before the write to when a watcher has its event. However many they are,
// they get as many events together. It returns the CPU s per 100,000 events, too.
func (o watched) fanOut(ctx context.Context, l *lab, s *server, n int) (perEvents float64, delays []time.Duration, err error) {
	w := writes{watched: o, count: max(1, l.events/n), perSecond: max(1, l.rate/n)}
	ctx, cancel := context.WithTimeoutCause(ctx, lateBy+time.Duration(w.count/w.perSecond+1)*time.Second,
		errors.New("the watchers did not see every write in time"))
	defer cancel()
	watchers := make([]*watcher, n)
	clients, err := s.clientsets((n+watchersPerClient-1)/watchersPerClient, "")
	if err != nil {
		return 0, nil, err
	}
	for i := range watchers {
		if watchers[i], err = o.watch(ctx, clients[i/watchersPerClient], w.count); err != nil {
			return 0, nil, err
		}
	}
	defer func() {
		for _, each := range watchers {
			_ = each.body.Close()
		}
	}()
	cpu, err := s.spent(func() error {
		return s.phase(fmt.Sprint("watch ", n), func() error {
			var reading sync.WaitGroup
			for _, each := range watchers {
				reading.Go(func() { each.err = each.read() })
			}
			err := w.steadily(ctx, s)
			if err != nil {
				cancel()
			}
			reading.Wait()
			return err
		})
	})
	if err != nil {
		return 0, nil, err
	}
	for _, each := range watchers {
		if each.err != nil {
			return 0, nil, errors.Join(each.err, context.Cause(ctx))
		}
		delays = append(delays, each.delays...)
	}
	return cpu.Seconds() * 1e5 / float64(len(delays)), delays, nil
}

// writes are how many objects are written, and how fast.
type writes struct {
	watched

	count, perSecond int
}

// steadily writes at the rate.
func (w writes) steadily(ctx context.Context, s *server) error {
	writers, err := s.clientsets(watchWriters, "")
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / time.Duration(w.perSecond))
	defer tick.Stop()
	_, err = repeat(ctx, watchWriters, w.count, func(ctx context.Context, client, i int) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		return w.write(ctx, writers[client], i, strconv.FormatInt(time.Now().UnixNano(), 10))
	})
	return err
}

const configMapsPath = "/api/v1/namespaces/" + metav1.NamespaceDefault + "/configmaps"

func createConfigMap(ctx context.Context, client *kubernetes.Clientset, i int, moment string) error {
	_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("watched-%d", i)},
		Data:       map[string]string{sent: moment},
	}, metav1.CreateOptions{})
	return err
}

// watcher reads events as lines without decoding them, so that many fit beside
// the server.
type watcher struct {
	body   io.ReadCloser
	want   int
	delays []time.Duration
	err    error
}

func (o watched) watch(ctx context.Context, client *kubernetes.Clientset, want int) (*watcher, error) {
	body, err := client.CoreV1().RESTClient().Get().AbsPath(o.path).
		Param("watch", "true").Param("resourceVersion", o.from).Stream(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch: %w", err)
	}
	return &watcher{body: body, want: want}, nil
}

func (w *watcher) read() error {
	marker := []byte(`"` + sent + `":"`)
	lines := bufio.NewReader(w.body)
	for len(w.delays) < w.want {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return fmt.Errorf("after %d of %d events: %w", len(w.delays), w.want, err)
		}
		now := time.Now()
		_, rest, found := bytes.Cut(line, marker)
		if !found {
			continue
		}
		digits, _, _ := bytes.Cut(rest, []byte(`"`))
		nanoseconds, err := strconv.ParseInt(string(digits), 10, 64)
		if err != nil {
			return fmt.Errorf("event %q: %w", line, err)
		}
		w.delays = append(w.delays, now.Sub(time.Unix(0, nanoseconds)))
	}
	return nil
}
