// Command keep makes the data directories that the test of the package kept
// starts later versions on:
//
//	go -C test run ./kept/keep -binary /path/to/sailplane -version NAME -out kept/testdata
//
// It runs the binary on a new directory for each storage, with and without
// encryption, stopped and killed, writes objects of many kinds and a history,
// and packs each directory into NAME-*.tar.gz with what is in it beside, in
// NAME-*.json. A run takes as long as -age says: the default waits until the
// server has compacted its history.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sailplane-dev/sailplane/test/kept"
)

// compacted is when a server has compacted its history for the first time:
// it looks each five minutes, and drops what is older than that.
const compacted = 10*time.Minute + 20*time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "keep:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("keep", flag.ContinueOnError)
	binary := f.String("binary", "", "the sailplane binary whose data is kept")
	version := f.String("version", "", "what the files are called by")
	out := f.String("out", filepath.Join("kept", "testdata"), "directory for the files")
	age := f.Duration("age", compacted, "how long a server runs between the two halves of what is written")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *binary == "" || *version == "" {
		return errors.New("-binary and -version are needed: see -help")
	}
	text, err := exec.CommandContext(ctx, *binary, "version").Output()
	if err != nil {
		return fmt.Errorf("%s version: %w", *binary, err)
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	var work sync.WaitGroup
	variants := variants()
	errs := make([]error, len(variants))
	for i, v := range variants {
		v.binary, v.age, v.listing.Program = *binary, *age, strings.TrimSpace(string(text))
		work.Go(func() {
			if err := v.keep(ctx, filepath.Join(*out, *version+"-"+v.name)); err != nil {
				errs[i] = fmt.Errorf("%s: %w", v.name, err)
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// variants are the data directories that are kept of a version.
func variants() []*variant {
	return []*variant{
		{name: "sqlite", listing: kept.Listing{Storage: "sqlite", Ended: stopped}},
		{name: "sqlite-killed", listing: kept.Listing{Storage: "sqlite", Ended: killed}},
		{name: "sqlite-encrypted", listing: kept.Listing{Storage: "sqlite", Ended: stopped, Encrypted: true}},
		{name: "etcd", listing: kept.Listing{Storage: "etcd", Ended: stopped}},
		{name: "etcd-killed", listing: kept.Listing{Storage: "etcd", Ended: killed}},
		{name: "etcd-encrypted", listing: kept.Listing{Storage: "etcd", Ended: stopped, Encrypted: true}},
	}
}
