// Package envtest lets this program stand in for the kube-apiserver and the
// etcd that controller-runtime's envtest starts:
//
//	sailplane envtest install --dir bin/envtest
//	KUBEBUILDER_ASSETS=$PWD/bin/envtest go test ./...
//
// Install writes one program under two names, and Named returns the program for
// the name it was called by:
//
//   - etcd is an etcd with one member that listens at the client URLs
//   - kube-apiserver is what "sailplane serve" is, told by the flags of
//     kube-apiserver, with every built-in type and without a data directory
//
// Unknown flags are accepted, each with one line on standard error: a suite
// runs, and sees what has no effect.
package envtest

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
)

// The names of the programs that envtest looks for.
const (
	apiServerName = "kube-apiserver"
	etcdName      = "etcd"
	kubectlName   = "kubectl"
)

// Logging writes log entries as a configuration says.
type Logging func(ctx context.Context, to io.Writer, c config.Log) context.Context

// Named returns the program of the name, the first argument of a process, or
// nil if this package has none.
func Named(arg0 string, log Logging) *cobra.Command {
	switch strings.TrimSuffix(filepath.Base(arg0), ".exe") {
	case apiServerName:
		return lenient((&apiServer{log: log}).command())
	case etcdName:
		return lenient((&member{log: log}).command())
	}
	return nil
}

// lenient has a command accept unknown flags, with a warning each.
func lenient(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.SilenceUsage, c.SilenceErrors = true, true
	c.CompletionOptions.DisableDefaultCmd = true
	c.DisableFlagParsing = true
	c.RunE = func(cmd *cobra.Command, args []string) error {
		flags := cmd.Flags()
		cmd.InitDefaultHelpFlag()
		known, unknown := split(args, func(name string) bool { return flags.Lookup(name) != nil })
		if err := flags.Parse(known); err != nil {
			return err
		}
		if help, err := flags.GetBool("help"); err == nil && help {
			return cmd.Help()
		}
		if err := cobra.NoArgs(cmd, flags.Args()); err != nil {
			return err
		}
		for _, name := range unknown {
			warn(cmd.ErrOrStderr(), "--%s is not supported and has no effect", name)
		}
		return run(cmd, nil)
	}
	return c
}

// split separates the known flags, with their values, from the names of the
// unknown ones. As in Kubernetes, an underscore in a name is a hyphen.
func split(args []string, isKnown func(name string) bool) (known, unknown []string) {
	for i := 0; i < len(args); i++ {
		name, isLong := strings.CutPrefix(args[i], "--")
		if !isLong || name == "" {
			known = append(known, args[i])
			continue
		}
		name, value, hasValue := strings.Cut(name, "=")
		name = strings.ReplaceAll(name, "_", "-")
		switch {
		case isKnown(name) && hasValue:
			known = append(known, "--"+name+"="+value)
		case isKnown(name):
			known = append(known, "--"+name)
		default:
			if !slices.Contains(unknown, name) {
				unknown = append(unknown, name)
			}
			if !hasValue && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
				i++ // its value
			}
		}
	}
	return known, unknown
}

// warn writes one line to the log.
func warn(to io.Writer, format string, values ...any) {
	fmt.Fprintf(to, "warning: "+format+"\n", values...)
}
