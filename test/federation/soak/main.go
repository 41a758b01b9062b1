// Soak does harm to API servers behind another one for as long as it is told, while clients
// work through that, and says what was wrong. The exit status is 1 then.
//
//	go -C test run ./federation/soak -for 1h
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
	"github.com/sailplane-dev/sailplane/test/federation/storm"
	"github.com/sailplane-dev/sailplane/test/script"
)

func main() {
	o := storm.Options{Out: os.Stdout}
	flag.DurationVar(&o.For, "for", time.Hour, "how long servers are hurt")
	flag.DurationVar(&o.Every, "every", time.Minute, "how often progress is printed")
	flag.DurationVar(&o.Longest, "longest", 8*time.Second, "how long a server is hurt at most, about")
	flag.DurationVar(&o.Slowest, "slowest", time.Second, "how long a request may take to a server that is not hurt")
	flag.DurationVar(&o.Again, "again", 5*time.Second, "how soon a server is to be available that says of itself that it is ready")
	flag.DurationVar(&o.Settle, "settle", 2*time.Minute, "how soon all that was deleted is to be gone, in the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// run runs it in a temporary directory, which stays if something is wrong.
func run(ctx context.Context, o storm.Options) (failed bool, err error) {
	if o.Dir, err = os.MkdirTemp("", "sailplane-federation-soak-"); err != nil {
		return false, err
	}
	defer func() {
		if ctx.Err() != nil { // it was told to end, perhaps before it began
			err = nil
		}
		if failed || err != nil {
			fmt.Println("what the servers wrote and kept is in", o.Dir)
			return
		}
		err = os.RemoveAll(o.Dir)
	}()
	programs := filepath.Join(o.Dir, "bin")
	if err := os.Mkdir(programs, 0o700); err != nil {
		return false, err
	}
	if err := script.Build(ctx, programs); err != nil {
		return false, err
	}
	if o.Programs, err = behind.BuildPrograms(ctx, programs); err != nil {
		return false, err
	}
	return storm.Run(ctx, o)
}
