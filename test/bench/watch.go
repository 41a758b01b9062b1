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
	// watchersPerClient share a connection, as the informers of a program do.
	watchersPerClient = 10
	watchWriters      = 8
	// sent is the key of the moment an object was written.
	sent = "sent"
	// lateBy is how long after the last write its events are waited for.
	lateBy = 30 * time.Second
)

func measureWatch(ctx context.Context, l *lab, t target) error {
	return with(ctx, l, t, func(s *server) error { return fanOut(ctx, l, s) })
}

// fanOut has many watchers see writes that come at a steady rate, and measures
// from before the write to when a watcher has its event.
func fanOut(ctx context.Context, l *lab, s *server) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lateBy+time.Duration(l.writes/l.rate+1)*time.Second,
		errors.New("the watchers did not see every write in time"))
	defer cancel()
	watchers := make([]*watcher, l.watchers)
	clients, err := s.clientsets((l.watchers+watchersPerClient-1)/watchersPerClient, "")
	if err != nil {
		return err
	}
	for i := range watchers {
		if watchers[i], err = watch(ctx, clients[i/watchersPerClient], l.writes); err != nil {
			return err
		}
	}
	defer func() {
		for _, w := range watchers {
			_ = w.body.Close()
		}
	}()
	cpu, err := s.spent(func() error {
		return s.phase("watch", func() error {
			var reading sync.WaitGroup
			for _, w := range watchers {
				reading.Go(func() { w.err = w.read() })
			}
			err := writeSteadily(ctx, l, s)
			if err != nil {
				cancel()
			}
			reading.Wait()
			return err
		})
	})
	if err != nil {
		return err
	}
	var delays []time.Duration
	for _, w := range watchers {
		if w.err != nil {
			return errors.Join(w.err, context.Cause(ctx))
		}
		delays = append(delays, w.delays...)
	}
	what := fmt.Sprintf("%d writes a second to %d watchers", l.rate, l.watchers)
	l.table.set(what+": CPU s per 100,000 events", digits(cpu.Seconds()*1e5/float64(len(delays))))
	l.table.set(what+": delivery p50 / p99 ms", tail(delays))
	return nil
}

// writeSteadily creates ConfigMaps at the rate of the watch measurement.
func writeSteadily(ctx context.Context, l *lab, s *server) error {
	writers, err := s.clientsets(watchWriters, "")
	if err != nil {
		return err
	}
	tick := time.NewTicker(time.Second / time.Duration(l.rate))
	defer tick.Stop()
	_, err = repeat(ctx, watchWriters, l.writes, func(ctx context.Context, client, i int) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		_, err := writers[client].CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("watched-%d", i)},
			Data:       map[string]string{sent: strconv.FormatInt(time.Now().UnixNano(), 10)},
		}, metav1.CreateOptions{})
		return err
	})
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

func watch(ctx context.Context, client *kubernetes.Clientset, want int) (*watcher, error) {
	// Of resource version 0 on: what exists comes first, and has no moment.
	body, err := client.CoreV1().RESTClient().Get().Namespace(metav1.NamespaceDefault).Resource("configmaps").
		Param("watch", "true").Param("resourceVersion", "0").Stream(ctx)
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
