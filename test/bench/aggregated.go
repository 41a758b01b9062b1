package main

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	aggregatedName    = "aggregated"
	phaseAggregated   = "Servers behind"
	rowFirstAnswer    = "from an APIService to the first answer: ms"
	aggregatedClients = 8
	// announced are how many APIServices a round measures one by one.
	announced = 5
	// ownGroup and handedGroup are those of ./bench/parted.
	ownGroup    = "own.example.com"
	handedGroup = "handed.example.com"
	// behindService is in front of all servers, each of which has a port.
	behindService = "behind"
	// manyMinutes is what of -idle many servers are looked at: kube-apiserver looks at some of
	// them once a minute only.
	manyMinutes = 2
)

func proxiedRow() string {
	return fmt.Sprintf("proxied get, %d clients: CPU s of the front per 1,000", aggregatedClients)
}

func behindRow(n int, what string) string { return fmt.Sprintf("%d servers behind: %s", n, what) }

func ownRow() string {
	return fmt.Sprintf("get of the server's own, %d clients: CPU s per 1,000", aggregatedClients)
}

func handedRow() string {
	return fmt.Sprintf("get at a handler in the process, %d clients: CPU s per 1,000", aggregatedClients)
}

// measureAggregated measures what it takes to have other servers answer. Storage has no part
// in it, so that one of each kind is enough; in memory, it is a server in the process.
func measureAggregated(ctx context.Context, l *lab, t target) error {
	switch of := t.(type) {
	case *sailplane:
		switch of.storage {
		case storageMemory:
			return with(ctx, l, &parted{lab: l, part: "handed"}, func(s *server) error { return handedGets(ctx, l, s) })
		case storageEtcd:
			return nil
		}
	case *kube:
		if of.kine {
			return nil
		}
		front := *of
		front.proxies = true
		t = &front
	}
	if err := withBehind(ctx, l, t, announced, func(s *server, b []behind) error { return proxied(ctx, l, s, b) }); err != nil {
		return err
	}
	return withBehind(ctx, l, t, l.behind, func(s *server, b []behind) error { return manyBehind(ctx, l, s, b) })
}

// proxied measures gets of an object that another server has, and how soon there are any.
func proxied(ctx context.Context, l *lab, s *server, all []behind) error {
	client, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	first, err := client.answers(ctx, all[0])
	if err != nil {
		return err
	}
	if err := proxiedGets(ctx, l, s, all[0]); err != nil {
		return err
	}
	l.results.add(phaseAggregated, "the first time "+rowFirstAnswer, milliseconds(first))
	for _, b := range all[1:] {
		took, err := client.answers(ctx, b)
		if err != nil {
			return err
		}
		l.results.add(phaseAggregated, rowFirstAnswer, milliseconds(took))
	}
	return nil
}

// proxiedGets measures the front alone: what is behind is the same for all.
func proxiedGets(ctx context.Context, l *lab, s *server, b behind) error {
	clients, err := s.clientsets(aggregatedClients, "")
	if err != nil {
		return err
	}
	get := func(ctx context.Context, client, _ int) error { return b.get(ctx, clients[client]) }
	if _, err := repeat(ctx, aggregatedClients, warmUp, get); err != nil {
		return err
	}
	front := &server{processes: s.processes[:1]}
	var took []time.Duration
	n := aggregatedClients * l.requests
	cpu, err := front.spent(func() error {
		return s.phase("proxied get", func() (err error) {
			took, err = repeat(ctx, aggregatedClients, n, get)
			return err
		})
	})
	if err != nil {
		return err
	}
	l.results.add(phaseAggregated, proxiedRow(), cpu.Seconds()*1000/float64(n))
	l.results.latencies(phaseAggregated, fmt.Sprintf("proxied get, %d clients", aggregatedClients), took)
	return nil
}

// handedGets measures gets of an object of the server's own, and of one that another server
// in the process has, in turns.
func handedGets(ctx context.Context, l *lab, s *server) error {
	clients, err := s.clientsets(aggregatedClients, "")
	if err != nil {
		return err
	}
	n := max(1, aggregatedClients*l.requests/bursts)
	sides := []behind{{Group: ownGroup}, {Group: handedGroup}}
	for burst := range bursts + 1 {
		slices.Reverse(sides) // each is the first as often as the other
		cost := map[string]float64{}
		for _, b := range sides {
			cpu, err := s.spent(func() error {
				_, err := repeat(ctx, aggregatedClients, n, func(ctx context.Context, client, _ int) error { return b.get(ctx, clients[client]) })
				return err
			})
			if err != nil {
				return err
			}
			cost[b.Group] = cpu.Seconds() * 1000 / float64(n)
		}
		if burst == 0 {
			continue // it warms up
		}
		own, handed := cost[ownGroup], cost[handedGroup]
		l.results.add(phaseAggregated, ownRow(), own)
		l.results.add(phaseAggregated, handedRow(), handed)
		l.results.add(phaseAggregated, "get at a handler in the process: times that of the server's own", handed/own)
	}
	return nil
}

// manyBehind measures what a front keeps and does for many servers that nobody asks for.
func manyBehind(ctx context.Context, l *lab, s *server, all []behind) error {
	if err := frontAtRest(ctx, l, s, 0); err != nil {
		return err
	}
	client, err := s.announcer(ctx)
	if err != nil {
		return err
	}
	for _, b := range all {
		if err := client.announce(ctx, b); err != nil {
			return err
		}
	}
	for _, b := range all {
		if err := client.await(ctx, b); err != nil {
			return err
		}
	}
	return frontAtRest(ctx, l, s, len(all))
}

// frontAtRest leaves a front with so many servers alone.
func frontAtRest(ctx context.Context, l *lab, s *server, n int) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	front, rest := &server{processes: s.processes[:1]}, manyMinutes*l.idle
	cpu, err := front.spent(func() error {
		return s.phase(fmt.Sprintf("idle %d behind", n), func() error { return pause(ctx, rest) })
	})
	if err != nil {
		return err
	}
	m, err := front.memory()
	if err != nil {
		return err
	}
	l.results.add(phaseAggregated, behindRow(n, "idle: CPU s of the front per minute"), cpu.Seconds()*60/rest.Seconds())
	l.results.add(phaseAggregated, behindRow(n, "RSS of the front, MiB"), mib(m.rss))
	l.results.add(phaseAggregated, behindRow(n, "anonymous memory of the front, MiB"), mib(m.anonymous))
	return nil
}
