package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
)

// options are the flags.
type options struct {
	only     list
	targets  list
	peers    string
	docs     string
	rounds   int
	linked   bool
	protobuf bool
	audit    bool

	idle     time.Duration
	requests int
	objects  int
	crds     int
	watchers counts
	events   int
	rate     int
	planes   int
	behind   int
	tenants  counts
	fills    counts
	moved    int
	fsync    bool

	cpuprofile string
	pgo        string

	given []string // on the command line
}

// list is a flag of words with commas between.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = strings.Split(s, ","); return nil }

// counts is a flag of numbers with commas between.
type counts []int

func (c *counts) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*c), " ", ","), "[]")
}

// Set reads the numbers.
func (c *counts) Set(s string) error {
	*c = nil
	for word := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return fmt.Errorf("%q: want numbers of at least 1", word)
		}
		*c = append(*c, n)
	}
	return nil
}

const (
	storageMemory = "memory"
	storageSQLite = "sqlite"
	storageEtcd   = "etcd"
	kubeEtcd      = "kube-etcd"
	kubeKine      = "kube-kine"

	// sharedName is the value of -only for servers that share one of the storages below.
	sharedName     = "shared"
	sharedPostgres = "postgres"
	sharedMariaDB  = "mariadb"
	sharedEtcd     = "etcd-cluster"
	// kubePrefix begins the names of kube-apiserver on a storage.
	kubePrefix = "kube-"
)

// usual are the targets of a machine of one's own. Others are measured when they are named.
func usual() []string { return []string{storageMemory, storageSQLite, storageEtcd, kubeEtcd, kubeKine} }

func targetNames() []string { return append(usual(), sharedNames()...) }

func parse(args []string, usage io.Writer) (options, error) {
	o := options{given: args, targets: usual(), watchers: counts{100, 1000}, fills: counts{1_000, 10_000, 100_000}}
	o.tenants = counts{10, 100, 1_000}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.Var(&o.only, "only", "measure these only: "+strings.Join(measurementNames(), ","))
	f.Var(&o.targets, "targets", "what to measure: Sailplane with a storage, kube-apiserver with etcd or kine: "+strings.Join(targetNames(), ","))
	f.StringVar(&o.peers, "peers", "",
		"directory with kube-apiserver, etcd and kine; built there when they are missing (default in the user's cache)")
	f.StringVar(&o.docs, "docs", "", "write README.md and charts to this directory, too")
	f.IntVar(&o.rounds, "rounds", 5, "how often each measurement is made, of one target after the other")
	f.BoolVar(&o.linked, "linked", false, "measure the parts linked into ./bench/profiled instead of the binary sailplane")
	f.BoolVar(&o.protobuf, "protobuf", false, "send and ask for ConfigMaps as protobuf instead of JSON")
	f.BoolVar(&o.audit, "audit", false, "have all servers write an audit log of writes, which Sailplane does by default")
	f.DurationVar(&o.idle, "idle", 30*time.Second, "how long the server is left alone before its memory is read")
	f.IntVar(&o.requests, "requests", 2000, "requests of each kind")
	f.IntVar(&o.objects, "objects", 10_000, "objects of a long list")
	f.IntVar(&o.crds, "crds", 100, "CRDs created in a burst")
	f.Var(&o.watchers, "watchers", "watchers, for each of which numbers watches are measured")
	f.IntVar(&o.events, "events", 200_000, "events that all watchers get together")
	f.IntVar(&o.rate, "rate", 10_000, "of these, events per second")
	f.IntVar(&o.planes, "planes", 50, "planes in one process")
	f.IntVar(&o.behind, "behind", 100, "servers behind one")
	f.Var(&o.tenants, "tenants", "EtcdStorages in a server, for each of which numbers it is measured")
	f.Var(&o.fills, "fills", "objects on a storage of several servers, for each of which numbers it is measured")
	f.IntVar(&o.moved, "moved", 100_000, "objects of 1 KiB that are copied, restored and backed up")
	f.BoolVar(&o.fsync, "fsync", true, "have databases flush the disk at each commit, as they do by default")
	f.StringVar(&o.cpuprofile, "cpuprofile", "", "write CPU and heap profiles of each phase to this directory; implies -linked")
	f.StringVar(&o.pgo, "pgo", "", "measure nothing, write a CPU profile of a mixed workload for cmd/sailplane/default.pgo; implies -linked")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	o.linked = o.linked || o.cpuprofile != "" || o.pgo != ""
	// The servers' working directory is another one.
	for _, path := range []*string{&o.cpuprofile, &o.pgo, &o.docs, &o.peers} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return o, err
		}
	}
	return o, o.check(f.Args())
}

func (o *options) check(rest []string) error {
	var errs []error
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unknown arguments: %v", rest))
	}
	for _, words := range []struct {
		flag         string
		given, known list
	}{{"only", o.only, measurementNames()}, {"targets", o.targets, targetNames()}} {
		for _, name := range words.given {
			if !slices.Contains(words.known, name) {
				errs = append(errs, fmt.Errorf("-%s %q: want of %v", words.flag, name, words.known))
			}
		}
	}
	if min(o.rounds, o.requests, o.objects, o.crds, o.events, o.rate, o.planes, o.behind, o.moved) < 1 {
		errs = append(errs, errors.New("-rounds, -requests, -objects, -crds, -events, -rate, -planes, -behind, -moved: want at least 1"))
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
