package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/verify"
)

func verifyCommand() *cobra.Command {
	var kubeconfig, caFile, tokenFile, sample string
	var groups, only []string
	var timeout time.Duration
	output := choice{value: "text", allowed: []string{"text", "json", "junit"}}
	c := &cobra.Command{
		Use:   "verify [URL]",
		Short: "Verify that an API server keeps the conventions of Kubernetes APIs",
		Long: `Verify that an API server, whoever made it, keeps the conventions of Kubernetes APIs:
discovery and OpenAPI that say what is served, versions that a watch can begin at,
preconditions, dry runs, pages, and errors that programs understand. Each check has an
ID, and says what was sent, what came and what should have. It writes only into
namespaces of its own, which it deletes. The server is that of a URL or a kubeconfig.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			config, err := verified(args, kubeconfig, caFile, tokenFile)
			if err != nil {
				return misused(err)
			}
			samples, err := readSamples(sample)
			if err != nil {
				return misused(err)
			}
			o := verify.Options{Config: config, Groups: groups, Only: only, Samples: samples, Timeout: timeout}
			if output.value == "text" {
				o.Progress = func(r verify.Result) {
					if r.Outcome != verify.Passed {
						return
					}
					fmt.Fprintln(cmd.ErrOrStderr(), printable(r.String()))
				}
			}
			report, err := verify.Run(cmd.Context(), o)
			if report == nil {
				return err
			}
			write := map[string]func(io.Writer) error{"text": report.WriteText, "json": report.WriteJSON, "junit": report.WriteJUnit}
			if wrong := write[output.value](cmd.OutOrStdout()); wrong != nil {
				err = errors.Join(err, wrong)
			}
			if n := report.Count(verify.Failed); n > 0 {
				err = errors.Join(err, fmt.Errorf("%d checks failed", n))
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the server, in place of a URL")
	f.StringVar(&caFile, "ca", "", "CA file to verify the server at the URL with")
	f.StringVar(&tokenFile, "token-file", "", "file with a token for the server at the URL")
	f.StringSliceVar(&groups, "groups", nil,
		"groups, or GROUP/VERSION, to verify the resources of; core is the one without a name (default all)")
	f.StringSliceVar(&only, "only", nil, "IDs of the checks to make (default all)")
	f.StringVar(&sample, "samples", "", "YAML file with an object of each kind that needs more than a name, but those of Kubernetes")
	f.DurationVar(&timeout, "timeout", 0, "how long each check may take (default 30s)")
	f.VarP(&output, "output", "o", "format: "+strings.Join(output.allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// verified is how to reach the server.
func verified(args []string, kubeconfig, caFile, tokenFile string) (*rest.Config, error) {
	switch {
	case (len(args) == 1) == (kubeconfig != ""):
		return nil, errors.New("name the server by a URL or by --kubeconfig")
	case kubeconfig != "":
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	return &rest.Config{Host: args[0], BearerTokenFile: tokenFile, TLSClientConfig: rest.TLSClientConfig{CAFile: caFile}}, nil
}

// readSamples reads the objects of a file.
func readSamples(file string) ([]*unstructured.Unstructured, error) {
	if file == "" {
		return nil, nil
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := verify.ReadSamples(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return all, nil
}
