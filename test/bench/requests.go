package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	manyClients = 32
	// oneClientShare of the requests are made by one client alone, which is
	// slow and needs fewer for its percentiles.
	oneClientShare = 4
	warmUp         = 200
)

func cpuRow(verb string, clients int) string {
	return fmt.Sprintf("%s, %d clients: CPU s per 1000", verb, clients)
}

func latencyRow(verb string, clients int) string {
	return fmt.Sprintf("%s, %d client%s: p50 / p99 ms", verb, clients, map[bool]string{false: "s"}[clients == 1])
}

// measureRequests measures one verb after the other on 1 KiB ConfigMaps, then
// custom resources, of which kube-apiserver's own tests say less.
func measureRequests(ctx context.Context, l *lab, t target) error {
	return with(ctx, l, t, func(s *server) error {
		for _, f := range []func(context.Context, *lab, *server) error{manyConfigMaps, oneClient, manyCustomResources} {
			if err := f(ctx, l, s); err != nil {
				return err
			}
		}
		return nil
	})
}

func manyConfigMaps(ctx context.Context, l *lab, s *server) error {
	clients, err := s.clientsets(manyClients, l.contentType())
	if err != nil {
		return err
	}
	warm := &configMaps{clients: clients, prefix: "warm", objects: make([]*corev1.ConfigMap, warmUp)}
	for _, v := range warm.verbs() {
		if _, err := repeat(ctx, manyClients, warmUp, v.do); err != nil {
			return fmt.Errorf("warm up: %s: %w", v.name, err)
		}
	}
	c := &configMaps{clients: clients, prefix: "many", objects: make([]*corev1.ConfigMap, l.requests)}
	for _, v := range c.verbs() {
		if err := l.load(ctx, s, manyClients, v); err != nil {
			return err
		}
	}
	return nil
}

func oneClient(ctx context.Context, l *lab, s *server) error {
	clients, err := s.clientsets(1, l.contentType())
	if err != nil {
		return err
	}
	c := &configMaps{clients: clients, prefix: "one", objects: make([]*corev1.ConfigMap, max(1, l.requests/oneClientShare))}
	for _, v := range c.verbs() {
		took, err := repeat(ctx, 1, len(c.objects), v.do)
		if err != nil {
			return fmt.Errorf("%s: %w", v.name, err)
		}
		l.table.set(latencyRow(v.name, 1), tail(took))
	}
	return nil
}

// load makes the requests of a verb and fills its rows.
func (l *lab) load(ctx context.Context, s *server, clients int, v verb) error {
	var took []time.Duration
	cpu, err := s.spent(func() error {
		return s.phase(v.name, func() (err error) {
			took, err = repeat(ctx, clients, l.requests, v.do)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", v.name, err)
	}
	l.table.set(cpuRow(v.name, clients), fmt.Sprintf("%.2f", cpu.Seconds()*1000/float64(l.requests)))
	l.table.set(latencyRow(v.name, clients), tail(took))
	return nil
}

// verb is one kind of request: number i, made by one of the clients.
type verb struct {
	name string
	do   func(ctx context.Context, client, i int) error
}

// configMaps are created, read, changed and deleted again.
type configMaps struct {
	clients []*kubernetes.Clientset
	prefix  string
	objects []*corev1.ConfigMap // as the server last answered
}

const manager = "bench"

func (c *configMaps) key(i int) string { return fmt.Sprintf("%s-%d", c.prefix, i) }

// value is a KiB that says what was done to the object.
func value(done string) string { return done + strings.Repeat("x", 1024-len(done)) }

func (c *configMaps) verbs() []verb {
	keep := func(i int, o *corev1.ConfigMap, err error) error {
		c.objects[i] = o
		return err
	}
	return []verb{
		{"create", func(ctx context.Context, client, i int) error {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.key(i)}, Data: map[string]string{"value": value("created")}}
			o, err := c.api(client).Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
			return keep(i, o, err)
		}},
		{"get", func(ctx context.Context, client, i int) error {
			_, err := c.api(client).Get(ctx, c.key(i), metav1.GetOptions{})
			return err
		}},
		{"update", func(ctx context.Context, client, i int) error {
			o := c.objects[i].DeepCopy()
			o.Data["value"] = value("updated")
			o, err := c.api(client).Update(ctx, o, metav1.UpdateOptions{FieldManager: manager})
			return keep(i, o, err)
		}},
		{"apply", func(ctx context.Context, client, i int) error {
			o := corev1apply.ConfigMap(c.key(i), metav1.NamespaceDefault).WithData(map[string]string{"value": value("applied")})
			_, err := c.api(client).Apply(ctx, o, metav1.ApplyOptions{FieldManager: manager, Force: true})
			return err
		}},
		{"delete", func(ctx context.Context, client, i int) error {
			return c.api(client).Delete(ctx, c.key(i), metav1.DeleteOptions{})
		}},
	}
}

func (c *configMaps) api(client int) typedcorev1.ConfigMapInterface {
	return c.clients[client].CoreV1().ConfigMaps(metav1.NamespaceDefault)
}

// repeat makes n requests with a number of clients at once and returns how long
// each took. The first error ends it.
func repeat(ctx context.Context, clients, n int, do func(ctx context.Context, client, i int) error) ([]time.Duration, error) {
	took := make([]time.Duration, n)
	var next atomic.Int64
	var all sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for client := range clients {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				begun := time.Now()
				if err := do(ctx, client, i); err != nil {
					cancel(fmt.Errorf("request %d: %w", i, err))
					return
				}
				took[i] = time.Since(begun)
			}
		})
	}
	all.Wait()
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	return took, nil
}
