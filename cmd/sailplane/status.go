package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

func statusCommand() *cobra.Command {
	return reportCommand(&cobra.Command{
		Use:   "status",
		Short: "Show how a running server is",
		Long: `Show how a running server is: its planes and checks, what is stored, which
watch caches there are, who asks most, and which requests were slow. It asks with the
kubeconfig of the administrator, or another one of who may get ` + insight.Path + `.`,
	}, nil, writeStatus)
}

func serversCommand() *cobra.Command {
	return reportCommand(&cobra.Command{
		Use:   "servers",
		Short: "Show the API servers behind a running server",
		Long: `Show the API servers to which a running server hands requests: where each is, which
groups it answers, whether it can be used and since when, how long its last check took,
and which groups others have, too. It asks as "sailplane status" does.`,
	}, func(r *insight.Report) any { return append([]insight.Aggregated{}, r.Aggregated...) }, writeServers)
}

// reportCommand is a command that shows some of a server's report; nil: all of it, as it is.
func reportCommand(c *cobra.Command, some func(*insight.Report) any, write func(io.Writer, *insight.Report) error) *cobra.Command {
	s := &settings{}
	output := choice{value: "text", allowed: []string{"text", "json"}}
	c.Args = cobra.NoArgs
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		_, c, err := s.document()
		if err != nil {
			return err
		}
		b, err := askStatus(cmd.Context(), server.Kubeconfig(c))
		if err != nil {
			return err
		}
		if output.value == "json" && some == nil {
			_, err := cmd.OutOrStdout().Write(b)
			return err
		}
		r := &insight.Report{}
		if err := json.Unmarshal(b, r); err != nil {
			return fmt.Errorf("read the server's answer: %w: it may be of another version, "+
				"which sailplane status -o json prints as it is", err)
		}
		if output.value == "json" {
			to := json.NewEncoder(cmd.OutOrStdout())
			to.SetIndent("", "  ")
			return to.Encode(some(r))
		}
		return write(cmd.OutOrStdout(), r)
	}
	s.only(c, "data-dir", "kubeconfig")
	c.Flags().Lookup("kubeconfig").Usage = "kubeconfig to ask with (default admin.kubeconfig in --data-dir)"
	c.Flags().VarP(&output, "output", "o", "format: "+strings.Join(output.allowed, ", "))
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(output.allowed, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// statusTimeout is how long a server may take to look at itself.
const statusTimeout = time.Minute

// askStatus gets the report from the server of a kubeconfig.
func askStatus(ctx context.Context, kubeconfig string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := page{path: insight.Path, what: "status", part: "insight.Status{}"}.get(ctx, kubeconfig)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	return io.ReadAll(answer)
}

// page is what a server answers at a path of ours.
type page struct {
	path   string
	method string // empty: get
	query  map[string]string
	what   string // "status"
	part   string // what serves it
	// object and resource are those of a sub-resource; empty: it is none.
	object, resource string
	body             io.Reader
}

// verb is what the user must be allowed to do.
func (p page) verb() string { return strings.ToLower(cmp.Or(p.method, http.MethodGet)) }

// rule allows it, in a role.
func (p page) rule() string {
	if p.resource == "" {
		return fmt.Sprintf("nonResourceURLs: [%s] and verbs: [%s]", p.path, p.verb())
	}
	verb := p.verb()
	if p.method == http.MethodPost {
		verb = "create"
	}
	return fmt.Sprintf("apiGroups: [%s], resources: [%s] and verbs: [%s]", v1alpha1.GroupName, p.resource, verb)
}

// isMissing tells whether the object is what was not found.
func (p page) isMissing(s metav1.Status) bool {
	return p.object != "" && s.Details != nil && s.Details.Name == p.object
}

// get asks the server of a kubeconfig. The caller closes the answer.
func (p page) get(ctx context.Context, kubeconfig string) (io.ReadCloser, error) {
	if kubeconfig == "" {
		return nil, misused(errors.New("--data-dir is empty: name the server's --kubeconfig"))
	}
	if _, err := os.Stat(kubeconfig); err != nil {
		return nil, misused(fmt.Errorf("no kubeconfig of a server: %w: name the server's --data-dir, or a --kubeconfig", err))
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, misused(fmt.Errorf("%s: %w", kubeconfig, err))
	}
	// Not that of discovery, which ends everything after 32 s: there are large backups.
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, misused(fmt.Errorf("%s: %w", kubeconfig, err))
	}
	ask := client.Verb(cmp.Or(p.method, http.MethodGet)).AbsPath(p.path).MaxRetries(0)
	for name, value := range p.query {
		ask = ask.Param(name, value)
	}
	if p.body != nil {
		ask = ask.Body(p.body)
	}
	answer, err := ask.Stream(ctx)
	var answered apierrors.APIStatus
	switch {
	case err == nil:
		return answer, nil
	case apierrors.IsUnauthorized(err):
		return nil, fmt.Errorf("the server at %s does not know the user of %s, who is of another server, or whose login has ended",
			config.Host, kubeconfig)
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("the user of %s may not %s the %s: ask with the administrator's kubeconfig, "+
			"or bind a ClusterRole with %s", kubeconfig, p.verb(), p.what, p.rule())
	case apierrors.IsNotFound(err) && errors.As(err, &answered) && p.isMissing(answered.Status()):
		return nil, fmt.Errorf("the server at %s has no EtcdStorage %q", config.Host, p.object)
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("the server at %s has no %s: its program is older than this one, or made without %s",
			config.Host, p.what, p.part)
	case errors.As(err, &answered):
		return nil, fmt.Errorf("the server at %s: %w", config.Host, err)
	}
	return nil, fmt.Errorf("no answer from the server at %s: %w: is it running, and is %s its kubeconfig? Start it, or name another "+
		"one with --data-dir or --kubeconfig", config.Host, err, kubeconfig)
}
