// Command release builds a program for some platforms and packs it: for each an
// archive and an SBOM, and one file with the checksums of all.
//
//	release -targets linux/amd64,darwin/arm64 -dist dist ./cmd/sailplane
//
// The same commit and the same Go give the same bytes: every time is that of the
// commit. The version, the time and the modules are those that Go puts into the
// binary, so the archive, its SBOM, and what the program says of itself agree.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := command(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func command(ctx context.Context, args []string, out io.Writer) error {
	r := release{dir: ".", out: out}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // the error says it
	targets := flags.String("targets", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64", "platforms, as GOOS/GOARCH,...")
	flags.StringVar(&r.dist, "dist", "dist", "directory for the files; those of an earlier release are deleted")
	flags.BoolVar(&r.dirty, "dirty", false, "build what is not committed, too; its version ends in +dirty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return fmt.Errorf("%d packages: name one main package, as in: release ./cmd/sailplane", flags.NArg())
	}
	r.pkg = flags.Arg(0)
	for _, one := range strings.Split(*targets, ",") {
		goos, goarch, found := strings.Cut(one, "/")
		if !found {
			return fmt.Errorf("-targets: %q is no platform: want one of those that `go tool dist list` prints, such as linux/amd64", one)
		}
		r.targets = append(r.targets, target{goos, goarch})
	}
	return r.run(ctx)
}
