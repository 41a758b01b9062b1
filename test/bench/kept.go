package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

const (
	keptName  = "kept"
	phaseKept = "Objects that a table keeps"
	// keptGroup is that of ./bench/parted.
	keptGroup = "kept.example.com"
	// keptObjects are in each list.
	keptObjects = 1000
	// keptListShare of the gets are as many lists as are made.
	keptListShare = 50
)

// measureKept compares reads of what is stored in SQLite with those of what a table of SQLite keeps,
// in one server, in turns.
func measureKept(ctx context.Context, l *lab, t target) error {
	if s, ok := t.(*sailplane); !ok || s.storage != storageSQLite {
		return nil
	}
	return with(ctx, l, &parted{lab: l, part: keptName}, func(s *server) error {
		client, err := s.clientset("")
		if err != nil {
			return err
		}
		r := &keptReads{lab: l, server: s, client: client, sides: []string{ownGroup, keptGroup}}
		for _, group := range r.sides {
			if err := fillThings(ctx, client, group); err != nil {
				return fmt.Errorf("%s: %w", group, err)
			}
		}
		for turn := range bursts + 1 {
			for _, verb := range []string{"get", fmt.Sprintf("list of %d", keptObjects)} {
				slices.Reverse(r.sides) // each is the first as often as the other
				if err := r.read(ctx, verb, turn > 0); err != nil {
					return fmt.Errorf("%s: %w", verb, err)
				}
			}
		}
		return nil
	})
}

func thingsPath(group string) string { return "/apis/" + group + "/v1/namespaces/default/things" }

// fillThings creates what is read, of 1 KiB each.
func fillThings(ctx context.Context, client *kubernetes.Clientset, group string) error {
	_, err := repeat(ctx, burstClients, keptObjects, func(ctx context.Context, _, i int) error {
		thing := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"Apple","metadata":{"name":"thing-%d"},"spec":{"variety":%q}}`,
			group, i, strings.Repeat("x", 1<<10))
		return client.CoreV1().RESTClient().Post().AbsPath(thingsPath(group)).SetHeader("Content-Type", "application/json").
			Body([]byte(thing)).Do(ctx).Error()
	})
	return err
}

// keptReads reads from both groups of a server.
type keptReads struct {
	*lab

	server *server
	client *kubernetes.Clientset
	sides  []string // groups, in the order of the next turn
}

// read makes the requests of one turn. The first turn warms up.
func (r *keptReads) read(ctx context.Context, verb string, counts bool) error {
	n := max(1, r.requests/bursts)
	if verb != "get" {
		n = max(1, r.requests/keptListShare/bursts)
	}
	cost := map[string]float64{}
	for _, group := range r.sides {
		var took []time.Duration
		cpu, err := r.server.spent(func() (err error) {
			took, err = repeat(ctx, 1, n, func(ctx context.Context, _, i int) error {
				path := thingsPath(group)
				if verb == "get" {
					path += fmt.Sprintf("/thing-%d", i%keptObjects)
				}
				body, err := r.client.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
				if err == nil && len(body) < 1<<10 {
					err = errors.New("the answer has no object")
				}
				return err
			})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", group, err)
		}
		cost[group] = cpu.Seconds() * 1000 / float64(n)
		if counts {
			r.results.add(phaseKept, fmt.Sprintf("%s, %s: CPU s per 1,000", group, verb), cost[group])
			r.results.latencies(phaseKept, fmt.Sprintf("%s, %s", group, verb), took)
		}
	}
	if counts {
		r.results.add(phaseKept, verb+" of what a table keeps: times the CPU of one of what is stored", cost[keptGroup]/cost[ownGroup])
	}
	return nil
}
