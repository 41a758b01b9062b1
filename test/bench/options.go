package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// options are the flags.
type options struct {
	only     list
	storages list
	runs     int
	compare  bool
	linked   bool
	protobuf bool

	idle     time.Duration
	requests int
	crds     int
	watchers int
	writes   int
	rate     int

	cpuprofile string
	pgo        string
}

// list is a flag of words with commas between.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = strings.Split(s, ","); return nil }

func parse(args []string, usage io.Writer) (options, error) {
	o := options{storages: list{"memory", "sqlite", "etcd"}}
	var names []string
	for _, m := range measurements() {
		names = append(names, m.name)
	}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.Var(&o.only, "only", "measure these only: "+strings.Join(names, ","))
	f.Var(&o.storages, "storage", "storages to measure")
	f.IntVar(&o.runs, "runs", 7, "starts of a server, and CRDs from POST to first object")
	f.BoolVar(&o.compare, "compare", false, "measure kube-apiserver and etcd too, found in KUBEBUILDER_ASSETS or on PATH")
	f.BoolVar(&o.linked, "linked", false, "measure the parts linked into ./bench/profiled instead of the binary sailplane")
	f.BoolVar(&o.protobuf, "protobuf", false, "send and ask for ConfigMaps as protobuf instead of JSON")
	f.DurationVar(&o.idle, "idle", 30*time.Second, "how long the server is left alone before its memory is read")
	f.IntVar(&o.requests, "requests", 2000, "requests of each kind")
	f.IntVar(&o.crds, "crds", 100, "CRDs created in a burst")
	f.IntVar(&o.watchers, "watchers", 200, "watchers of the watch measurement")
	f.IntVar(&o.writes, "writes", 2000, "writes the watchers see")
	f.IntVar(&o.rate, "rate", 100, "writes per second the watchers see")
	f.StringVar(&o.cpuprofile, "cpuprofile", "", "write CPU and heap profiles of each phase to this directory; implies -linked")
	f.StringVar(&o.pgo, "pgo", "", "measure nothing, write a CPU profile of a mixed workload for cmd/sailplane/default.pgo; implies -linked")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.linked = o.linked || o.cpuprofile != "" || o.pgo != ""
	// The servers' working directory is another one.
	for _, path := range []*string{&o.cpuprofile, &o.pgo} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	return o, o.check(names, f.Args())
}

func (o *options) check(names, rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unknown arguments: %v", rest))
	}
	for _, name := range o.only {
		if !slices.Contains(names, name) {
			errs = append(errs, fmt.Errorf("-only %q: want of %v", name, names))
		}
	}
	known := []string{"memory", "sqlite", "etcd"}
	for _, s := range o.storages {
		if !slices.Contains(known, s) {
			errs = append(errs, fmt.Errorf("-storage %q: want of %v", s, known))
		}
	}
	if o.runs < 1 || o.requests < 1 || o.crds < 1 || o.watchers < 1 || o.writes < 1 || o.rate < 1 {
		errs = append(errs, errors.New("-runs, -requests, -crds, -watchers, -writes, -rate: want at least 1"))
	}
	return errors.Join(errs...)
}

// contentType is how clients of built-in types talk.
func (o *options) contentType() string {
	if o.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}
