package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	phaseRequests = "Requests"
	manyClients   = 32
	// oneClientShare of the requests are made by one client alone, which is
	// slow and needs fewer for its percentiles.
	oneClientShare = 4
	warmUp         = 200
)

// crowds are how many clients make requests at a time.
func crowds() []int { return []int{1, 8, manyClients} }

func requestsOf(verb string, clients int) string {
	return fmt.Sprintf("%s, %d client%s", verb, clients, map[bool]string{false: "s"}[clients == 1])
}

func cpuRow(verb string, clients int) string { return requestsOf(verb, clients) + ": CPU s per 1,000" }

// measureRequests measures one verb after the other on 1 KiB ConfigMaps, then
// custom resources, of which kube-apiserver's own tests say less.
func measureRequests(ctx context.Context, l *lab, t target) error {
	return with(ctx, l, t, func(s *server) error {
		if err := fillListed(ctx, s); err != nil {
			return err
		}
		if err := manyConfigMaps(ctx, l, s, crowds()...); err != nil {
			return err
		}
		return manyCustomResources(ctx, l, s)
	})
}

// manyConfigMaps makes every kind of request with each number of clients.
func manyConfigMaps(ctx context.Context, l *lab, s *server, crowds ...int) error {
	clients, err := s.clientsets(manyClients, l.contentType())
	if err != nil {
		return err
	}
	warm := &configMaps{clients: clients, prefix: "warm", objects: make([]*corev1.ConfigMap, warmUp)}
	for _, v := range warm.verbs() {
		if _, err := repeat(ctx, manyClients, v.times(warmUp), v.do); err != nil {
			return fmt.Errorf("warm up: %s: %w", v.name, err)
		}
	}
	for _, crowd := range crowds {
		n := l.requests
		if crowd == 1 {
			n = max(1, n/oneClientShare)
		}
		c := &configMaps{clients: clients, prefix: fmt.Sprint("of-", crowd), objects: make([]*corev1.ConfigMap, n)}
		for _, v := range c.verbs() {
			if err := l.load(ctx, s, crowd, n, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// manyCustomResources measures creates of custom resources.
func manyCustomResources(ctx context.Context, l *lab, s *server) error {
	d, err := newDefiner(s)
	if err != nil {
		return err
	}
	const name = "many"
	if err := d.define(ctx, name); err != nil {
		return err
	}
	clients, err := s.dynamics(burstClients)
	if err != nil {
		return err
	}
	create := func(ctx context.Context, client, i int) error {
		o := object(name)
		o.SetName(fmt.Sprintf("many-%d", i))
		_, err := clients[client].Resource(definition(name).resource()).Namespace(metav1.NamespaceDefault).
			Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
		return err
	}
	return l.load(ctx, s, burstClients, l.requests, verb{name: "create custom resource", do: create})
}

// load makes n requests of a verb, or its share of them, and fills its rows.
func (l *lab) load(ctx context.Context, s *server, clients, n int, v verb) error {
	var took []time.Duration
	n = v.times(n)
	cpu, err := s.spent(func() error {
		return s.phase(fmt.Sprint(v.name, " ", clients), func() (err error) {
			took, err = repeat(ctx, clients, n, v.do)
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", v.name, err)
	}
	l.results.add(phaseRequests, cpuRow(v.name, clients), cpu.Seconds()*1000/float64(n))
	l.results.latencies(phaseRequests, requestsOf(v.name, clients), took)
	return nil
}

// verb is one kind of request: number i, made by one of the clients.
type verb struct {
	name string
	do   func(ctx context.Context, client, i int) error
	// share says that one in so many is enough: for requests that are much work.
	share int
}

// times is how many of n requests are made.
func (v verb) times(n int) int { return max(1, n/max(1, v.share)) }

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
