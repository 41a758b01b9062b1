package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/heap"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/tracing"
)

// serve holds the flags of "sailplane serve".
type serve struct {
	listen     string
	storage    string
	dataDir    string
	kubeconfig string
	crds       string
	deny       networks
	audit      auditing.Log
	encryption string
	traces     tracing.OTLP
	verbosity  verbosity
	login      login
	history    time.Duration
	limits     limits
}

func serveCommand() *cobra.Command {
	s := &serve{}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve the Kubernetes API until interrupted",
		Long: `Serve the Kubernetes API until interrupted.

The keys, the certificates and, by default, the objects are kept in the data
directory. When the server is ready it writes a kubeconfig and prints one line.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&s.listen, "listen", "127.0.0.1:6443", "address to serve HTTPS at; port 0 picks a free one")
	f.StringVar(&s.storage, "storage", "",
		"where objects are kept: "+strings.Join(storageForms(), ", ")+" (default etcd: in the data directory)")
	f.StringVar(&s.dataDir, "data-dir", "sailplane-data", "directory for keys, certificates and the default storage")
	f.StringVar(&s.kubeconfig, "kubeconfig", "",
		"file to write the administrator's kubeconfig to (default admin.kubeconfig in the data directory)")
	f.StringVar(&s.crds, "crds", "", "directory of CustomResourceDefinitions to apply before the server is ready")
	f.Var(&s.deny, "webhook-deny",
		"networks in which admission and conversion webhooks are not allowed; private: all outside the public internet")
	f.StringVar(&s.audit.Path, "audit-log", "",
		"file to write audit events to, - for standard output, or none (default audit.log in the data directory)")
	f.StringVar(&s.audit.PolicyFile, "audit-policy", "", "audit policy file (default every write, without bodies)")
	f.StringVar(&s.encryption, "encryption-config", "",
		"EncryptionConfiguration file that says which resources are stored encrypted, and how (default none)")
	f.StringVar(&s.traces.Endpoint, "otlp", "", "OpenTelemetry collector to send traces to, HOST:PORT of OTLP/gRPC (default none)")
	f.Int32Var(&s.traces.SamplesPerMillion, "otlp-samples", 0,
		"how many of a million requests are traced if their callers do not decide")
	f.VarP(&s.verbosity, "v", "v", "log verbosity: 0 quiet, 1 start-up phases, 2 and up as Kubernetes")
	f.DurationVar(&s.history, "storage-history", 5*time.Minute, "minimum time that the storage keeps old versions, for watches")
	f.Var(&s.limits.quota, "storage-quota", "size at which an embedded etcd refuses writes (default 8Gi)")
	f.Var(&s.limits.history, "storage-history-limit", "maximum size of the history of an embedded etcd, whatever its age (default 128Mi)")
	f.StringVar(&s.login.ca, "storage-ca", "", "CA file to verify an external storage with")
	f.StringVar(&s.login.cert, "storage-cert", "", "client certificate file for an external storage")
	f.StringVar(&s.login.key, "storage-key", "", "client key file for an external storage")
	f.StringVar(&s.login.passwordFile, "storage-password-file", "",
		"file with the password of a database (default the environment variable "+passwordVariable+")")
	_ = c.MarkFlagDirname("data-dir")
	_ = c.MarkFlagDirname("crds")
	_ = c.MarkFlagFilename("audit-policy")
	_ = c.MarkFlagFilename("encryption-config")
	_ = c.RegisterFlagCompletionFunc("webhook-deny", cobra.FixedCompletions([]string{privateNetworks}, cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("storage", cobra.FixedCompletions(
		[]string{"memory", "sqlite:", "etcd:", "etcd+http://", "etcd+https://", "postgres://", "mysql://", "nats://", "t4://"},
		cobra.ShellCompDirectiveNoSpace))
	return c
}

func (s *serve) run(ctx context.Context, out, log io.Writer) error {
	begun := time.Now()
	ctx = logging(ctx, log, int(s.verbosity))
	if s.kubeconfig == "" {
		s.kubeconfig = filepath.Join(s.dataDir, "admin.kubeconfig")
	}
	if s.login.passwordFile == "" {
		s.login.password = os.Getenv(passwordVariable)
	}
	storage, err := parseStorage(s.storage, s.dataDir, s.login)
	if err == nil {
		storage, err = s.limits.of(storage)
	}
	if err != nil {
		return err
	}
	definitions := crd.Definitions{Deny: s.deny}
	if s.crds != "" {
		if info, err := os.Stat(s.crds); err != nil {
			return fmt.Errorf("--crds: %w", err)
		} else if !info.IsDir() {
			return fmt.Errorf("--crds: %s is not a directory", s.crds)
		}
		definitions.FS = os.DirFS(s.crds)
	}
	return controlplane.New("sailplane").
		Listen(s.listen).
		Storage(storage).
		History(s.history).
		With(
			authn.Admin{Dir: filepath.Join(s.dataDir, "pki"), Kubeconfig: s.kubeconfig},
			authz.RBAC{},
			serviceaccount.Tokens{Dir: filepath.Join(s.dataDir, "pki")},
			preset.Custom{WebhookDeny: s.deny}.Parts(),
			definitions,
			aggregator.APIServices{},
			fairness.PriorityAndFairness{}, kube.FlowControl(),
			audited(s.audit, s.dataDir),
			encrypted(s.encryption),
			traced(s.traces),
			controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
				p.Work(controlplane.Work{Name: "ready line", Start: func(ctx context.Context, plane *controlplane.Plane) error {
					context.AfterFunc(ctx, heap.Tune())
					_, err := fmt.Fprintf(out, "sailplane: ready at https://%s in %d ms, kubeconfig %s\n",
						reachable(plane.Server().Address()), time.Since(begun).Milliseconds(), s.kubeconfig)
					return err
				}})
				return nil
			}),
		).
		Run(ctx)
}

// encrypted encrypts stored objects as the file says, if there is one.
func encrypted(file string) controlplane.Part {
	if file == "" {
		return controlplane.Parts{}
	}
	return encryption.AtRest{ConfigFile: file}
}

// traced sends traces to the collector, if there is one.
func traced(to tracing.OTLP) controlplane.Part {
	if to.Endpoint == "" {
		return controlplane.Parts{}
	}
	return to
}

// audited records to the file, or nothing.
func audited(to auditing.Log, dataDir string) controlplane.Part {
	switch to.Path {
	case "none":
		return controlplane.Parts{}
	case "":
		to.Path = filepath.Join(dataDir, "audit.log")
	}
	to.MaxSize, to.MaxBackups = 100<<20, 10
	return to
}

// logging sends klog and its contextual loggers to a slog handler.
func logging(ctx context.Context, w io.Writer, verbosity int) context.Context {
	// logr's verbosity V(n) is slog's level -n.
	// At 0, what k8s.io modules log as information is left out too.
	level := slog.LevelWarn
	if verbosity > 0 {
		level = slog.Level(-verbosity)
	}
	handler := slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: verbosityName})
	logger := logr.FromSlogHandler(handler)
	// The k8s.io modules still use klog's global logger in places.
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	_ = flags.Set("v", strconv.Itoa(verbosity)) // a number is a valid value
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	return klog.NewContext(ctx, logger)
}

// verbosity is the value of --v.
type verbosity int

const maxVerbosity = 10

func (v *verbosity) String() string { return strconv.Itoa(int(*v)) }
func (v *verbosity) Type() string   { return "int" }

func (v *verbosity) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxVerbosity {
		return fmt.Errorf("want a number from 0 to %d", maxVerbosity)
	}
	*v = verbosity(n)
	return nil
}

// verbosityName writes the level of V(n) as Vn, where slog would write DEBUG+3.
func verbosityName(_ []string, a slog.Attr) slog.Attr {
	if level, ok := a.Value.Any().(slog.Level); ok && a.Key == slog.LevelKey && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, fmt.Sprintf("V%d", -int(level)))
	}
	return a
}

// reachable returns the address that a client on this machine connects to: it
// cannot connect to an unspecified one, such as 0.0.0.0.
func reachable(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
}
