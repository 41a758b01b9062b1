// Command vuln looks for known vulnerabilities in modules, with govulncheck.
//
//	vuln -with golang.org/x/vuln/cmd/govulncheck@v1.9.0 . test
//
// Arguments are the directories of the modules. The database is that of GOVULNDB, or
// Go's own. Where Go's own cannot be reached nothing is checked: the command says so and
// why, and succeeds. Otherwise it fails when the code calls what is vulnerable.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

// database is the one that govulncheck asks without GOVULNDB.
const database = "https://vuln.go.dev"

// patience is how long the database may take to answer.
const patience = 10 * time.Second

func main() {
	with := flag.String("with", "", "govulncheck, as go run takes it, with its version")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *with, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vuln:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, with string, modules []string) error {
	if _, version, ok := strings.Cut(with, "@v"); !ok || version == "" || len(modules) == 0 {
		return errors.New("usage: vuln -with golang.org/x/vuln/cmd/govulncheck@VERSION DIRECTORY-OF-A-MODULE")
	}
	from := os.Getenv("GOVULNDB")
	named := from != ""
	if !named {
		from = database
	}
	if err := reachable(ctx, from); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if named {
			return fmt.Errorf("GOVULNDB names %s, which cannot be reached: %w", from, err)
		}
		fmt.Printf("skipped, nothing was checked: the database of vulnerabilities cannot be reached: %v\n", err)
		return nil
	}
	var errs []error
	for _, dir := range modules {
		check := exec.CommandContext(ctx, "go", "run", with, "-db", from, "./...")
		check.Dir, check.Stdout, check.Stderr = dir, os.Stdout, os.Stderr
		fmt.Printf("module %s:\n", dir)
		if err := check.Run(); err != nil {
			errs = append(errs, fmt.Errorf("module %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// reachable asks a database when it was last changed, as govulncheck does first.
// https://go.dev/doc/security/vuln/database#api
func reachable(ctx context.Context, from string) error {
	at, err := url.Parse(from)
	if err != nil {
		return err
	}
	if at.Scheme == "file" {
		_, err := os.Stat(filepath.Join(filepath.FromSlash(at.Path), "index", "db.json"))
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, at.JoinPath("index", "db.json").String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(asked)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", from, answer.Status)
	}
	return nil
}
