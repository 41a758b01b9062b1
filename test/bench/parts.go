package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// partsName is the value of -only for what each part costs a request.
const partsName = "parts"

// part is a server that has one more part than another one.
type part struct {
	target
	title string
	base  string // the title of the other one; of the one with the least its own
}

// leastPart and allParts are the ones that others are compared with.
const (
	leastPart = "nothing optional"
	allParts  = "sailplane serve"
)

func (l *lab) partTargets(collector string) []part {
	var all []part
	for _, each := range [][2]string{
		{"none", leastPart},
		{"unlimited", "nothing, not even the server's own limits"},
		{"rbac", "RBAC"},
		{"audit", "audit log"},
		{"fairness", "priority and fairness"},
		{"limits", "limits"},
		{"policies", "admission policies, none there"},
		{"webhooks", "admission webhooks, none there"},
		{"tokens", "service account tokens"},
		{"tracing-off", "tracing, no request traced"},
		{"tracing-on", "tracing, every request traced"},
		{"filtered", "filtered lists"},
	} {
		all = append(all, part{&parted{lab: l, part: each[0], collector: collector}, each[1], leastPart})
	}
	// The module of the benchmark does not link what encrypts: the binary does.
	return append(all,
		part{&sailplane{lab: l, storage: storageMemory}, allParts, leastPart},
		part{&sailplane{lab: l, storage: storageMemory, encrypt: true}, "sailplane serve, encryption with secretbox", allParts})
}

// measureParts measures gets and creates of each server once, beside its base: a machine
// that others use too is a third faster or slower a minute later.
func measureParts(ctx context.Context, l *lab) (err error) {
	collector, err := listenForSpans(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collector.Close()) }()
	all := l.partTargets(collector.address)
	byTitle := map[string]part{}
	for _, t := range all {
		l.parts.measure(t.title)
		byTitle[t.title] = t
	}
	for i := range all {
		t := all[(i+l.round)%len(all)]
		if t.title == t.base {
			continue
		}
		l.say("round %d of %d: part: %s", l.round+1, l.rounds, t.title)
		err := with(ctx, l, byTitle[t.base], func(base *server) error {
			return with(ctx, l, t, func(s *server) error { return l.measurePart(ctx, t, s, base) })
		})
		if err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
	}
	if collector.calls.Load() == 0 {
		return errors.New("no server sent what it traced: the row of traced requests means nothing")
	}
	return nil
}

// partVerbs are the rows of each part.
func partVerbs() []string { return []string{"get", "create"} }

// moreRow is the row of how many times the base's CPU time a verb takes.
func moreRow(verb string) string { return verb + ": times that of the base" }

// bursts are in how many turns a server and its base take the requests of a round.
const bursts = 10

// measurePart measures a server and its base in turns, after a few requests that are not
// counted.
func (l *lab) measurePart(ctx context.Context, t part, s, base *server) error {
	sides := []*partSide{{title: t.base, server: base}, {title: t.title, server: s}}
	for _, side := range sides {
		if err := side.prepare(ctx, l); err != nil {
			return fmt.Errorf("%s: %w", side.title, err)
		}
	}
	for burst := range bursts {
		slices.Reverse(sides) // each is the first as often as the other
		first := (l.requests*burst + bursts - 1) / bursts
		n := (l.requests*(burst+1)+bursts-1)/bursts - first
		if n == 0 { // few requests need fewer turns
			continue
		}
		for _, verb := range []string{"create", "get"} {
			cost := map[string]float64{}
			for _, side := range sides {
				cpu, err := side.spend(ctx, verb, first, n)
				if err != nil {
					return fmt.Errorf("%s: %s: %w", side.title, verb, err)
				}
				cost[side.title] = cpu.Seconds() * 1000 / float64(n)
				l.parts.measure(side.title)
				l.parts.add(partsName, verb, cost[side.title])
			}
			l.parts.measure(t.title)
			l.parts.add(partsName, moreRow(verb), cost[t.title]/cost[t.base])
		}
	}
	return nil
}

// partSide is a part's server or its base.
type partSide struct {
	title   string
	server  *server
	objects *configMaps
}

// prepare makes the clients, and a few requests.
func (p *partSide) prepare(ctx context.Context, l *lab) error {
	clients, err := p.server.clientsets(burstClients, l.contentType())
	if err != nil {
		return err
	}
	p.objects = &configMaps{clients: clients, prefix: "warm", objects: make([]*corev1.ConfigMap, warmUp)}
	for _, verb := range []string{"create", "get"} {
		if _, err := p.spend(ctx, verb, 0, warmUp); err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
	}
	p.objects = &configMaps{clients: clients, prefix: "part", objects: make([]*corev1.ConfigMap, l.requests)}
	return nil
}

// spend is the CPU time of some requests.
func (p *partSide) spend(ctx context.Context, verb string, first, n int) (time.Duration, error) {
	do := p.objects.get
	if verb == "create" {
		do = p.objects.create
	}
	return p.server.spent(func() error {
		_, err := repeat(ctx, burstClients, n, func(ctx context.Context, client, i int) error { return do(ctx, client, first+i) })
		return err
	})
}

// parted is ./bench/parted.
type parted struct {
	lab       *lab
	part      string
	collector string
}

func (t *parted) name() string { return t.part }

func (t *parted) start(ctx context.Context, dir, _ string) (*server, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{kubeconfig: filepath.Join(dir, "bench.kubeconfig")}
	p, err := begin(exec.Command(t.lab.program("parted"), fmt.Sprintf("--listen=127.0.0.1:%d", port), "--data-dir="+dir,
		"--part="+t.part, "--collector="+t.collector))
	if err != nil {
		return nil, err
	}
	s.processes = []*process{p}
	err = s.await(ctx, func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", s.kubeconfig) })
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}
