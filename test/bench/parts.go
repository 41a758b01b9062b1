package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"

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
	base  string // the title of the other one
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

// measureParts measures gets and creates of each server once.
func measureParts(ctx context.Context, l *lab) (err error) {
	collector, err := listenForSpans(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, collector.Close()) }()
	all := l.partTargets(collector.address)
	for _, t := range all {
		l.parts.measure(t.title)
	}
	for i := range all {
		t := all[(i+l.round)%len(all)]
		l.say("round %d of %d: part: %s", l.round+1, l.rounds, t.title)
		l.parts.measure(t.title)
		if err := with(ctx, l, t, func(s *server) error { return l.measurePart(ctx, s) }); err != nil {
			return fmt.Errorf("%s: %w", t.title, err)
		}
	}
	if collector.calls.Load() == 0 {
		return errors.New("no server sent what it traced: the row of traced requests means nothing")
	}
	return nil
}

// partBases are what each is compared with.
func (l *lab) partBases() map[string]string {
	bases := map[string]string{}
	for _, p := range l.partTargets("") {
		bases[p.title] = p.base
	}
	return bases
}

// partVerbs are the rows of each part.
func partVerbs() []string { return []string{"get", "create"} }

// measurePart measures a server, after a few requests that are not counted.
func (l *lab) measurePart(ctx context.Context, s *server) error {
	clients, err := s.clientsets(burstClients, l.contentType())
	if err != nil {
		return err
	}
	for _, run := range []struct {
		prefix   string
		requests int
		counts   bool
	}{{"warm", warmUp, false}, {"part", l.requests, true}} {
		c := &configMaps{clients: clients, prefix: run.prefix, objects: make([]*corev1.ConfigMap, run.requests)}
		for _, v := range []verb{{name: "create", do: c.create}, {name: "get", do: c.get}} {
			cpu, err := s.spent(func() error {
				_, err := repeat(ctx, burstClients, run.requests, v.do)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", v.name, err)
			}
			if run.counts {
				l.parts.add(partsName, v.name, cpu.Seconds()*1000/float64(run.requests))
			}
		}
	}
	return nil
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
