// Server runs a storage and does what its standard input asks, one operation a
// line (package wire), until the input ends. It is a process of its own, so that
// it can be killed at any moment.
//
//	server [-unsafe-no-sync] memory | sqlite:PATH | etcd:DIR | etcd+http://...[,...] | postgres://... | mysql://...
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
	"github.com/sailplane-dev/sailplane/test/faults/wire"
)

// stopTime is how long a stop may take, and startTime how long a database may.
const (
	stopTime  = 30 * time.Second
	startTime = time.Minute
)

func main() {
	noSync := flag.Bool("unsafe-no-sync", false, "let the operating system decide when writes reach the disk")
	flag.Parse()
	if err := run(flag.Arg(0), *noSync); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// storageOf describes the storage that an argument names.
func storageOf(name string, noSync bool) (controlplane.Storage, error) {
	kind, where, _ := strings.Cut(name, ":")
	switch kind {
	case "memory":
		return memory.Store{}, nil
	case "sqlite":
		return sqlite.File{Path: where, UnsafeNoSync: noSync}, nil
	case "etcd":
		return etcd.Embedded{Dir: where, UnsafeNoSync: noSync}, nil
	case "etcd+http":
		return etcd.Cluster{Endpoints: strings.Split(strings.TrimPrefix(name, "etcd+"), ",")}, nil
	case "postgres":
		return postgres.DB{URL: name, DialTimeout: startTime}, nil
	case "mysql":
		return mysql.DB{URL: name, DialTimeout: startTime}, nil
	}
	return nil, fmt.Errorf("storage %q: want memory, sqlite:PATH, etcd:DIR, etcd+http://HOST:PORT, or the URL of a database", name)
}

func run(name string, noSync bool) (err error) {
	ignoreFull()
	storage, err := storageOf(name, noSync)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	backend := storage.Open()
	defer func() {
		limited, stop := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
		defer stop()
		err = errors.Join(err, backend.Stop(limited))
	}()
	if err := backend.Start(ctx); err != nil {
		return err
	}
	s := &server{out: wire.NewWriter(os.Stdout)}
	if s.client, err = backend.Client(); err != nil {
		return err
	}
	defer func() { _ = s.client.Close() }() // it says that its context ended
	if err := s.out.Send(wire.Answer{PID: os.Getpid()}); err != nil {
		return err
	}
	return s.serve(ctx, os.Stdin)
}

// serve does what the lines ask, all at once, and returns when they end and
// everything is done.
func (s *server) serve(ctx context.Context, in io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines := json.NewDecoder(bufio.NewReader(in))
	for {
		var r wire.Request
		if err := lines.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a request: %w", err)
		}
		running.Go(func() { s.do(ctx, r) })
	}
}
