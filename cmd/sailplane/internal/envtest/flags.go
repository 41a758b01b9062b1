package envtest

import (
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/server"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// apiServer holds the flags of kube-apiserver. Those that serve has too are given;
// the others are here, and become what serve knows.
type apiServer struct {
	log   Logging
	given *config.Given

	address, advertise string
	port               int
	certDir            string
	storageBackend     string
	anonymous          bool
	issuers, keys      []string
	privileged         bool
	features           []string
	version            bool
}

func (s *apiServer) command() *cobra.Command {
	c := &cobra.Command{
		Use:   apiServerName,
		Short: "A Kubernetes API server without nodes, for envtest",
		Long: `A Kubernetes API server without nodes, for controller-runtime's envtest. It
accepts the flags of kube-apiserver. Those below mean the same as there; every
other flag prints one warning and has no effect.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.version {
				return printVersion(cmd.OutOrStdout(), "Kubernetes")
			}
			return s.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	s.given = config.Register(f, flags(), standard())
	f.StringVar(&s.address, "bind-address", "0.0.0.0", "address to listen on")
	f.IntVar(&s.port, "secure-port", 6443, "port to serve HTTPS on")
	f.StringVar(&s.advertise, "advertise-address", "", "address in the endpoints of the service kubernetes")
	f.StringVar(&s.certDir, "cert-dir", "/var/run/kubernetes", "directory of apiserver.crt and apiserver.key, created if missing")
	f.StringVar(&s.storageBackend, "storage-backend", "etcd3", "etcd3")
	f.BoolVar(&s.anonymous, "anonymous-auth", true, "accept requests without credentials")
	f.StringArrayVar(&s.issuers, "service-account-issuer", nil, "issuer of service account tokens, an https URL; the first is used")
	f.StringArrayVar(&s.keys, "service-account-key-file", nil, "keys or certificates that verify service account tokens")
	f.StringSliceVar(&s.features, "feature-gates", nil, "feature gates keep their defaults; other values only print a warning")
	f.BoolVar(&s.privileged, "allow-privileged", true, "true")
	f.BoolVar(&s.version, "version", false, "print the version")
	return c
}

// flags are those of kube-apiserver that set a field of the configuration: what serve
// has by the same name, and the storage by its names there.
func flags() []config.Flag {
	ours := []string{
		"listen", "advertise", "data-dir", "kubeconfig", "drain", "resources", "crds", "service", "otlp", "otlp-samples", "log-format",
		"storage-api", "storage-api-address",
		"storage", "storage-history", "storage-history-limit", "storage-quota", "storage-ca", "storage-cert", "storage-key",
		"storage-password-file", "storage-connections", "storage-poll-interval", "storage-share-key-file",
		"anonymous-paths", "service-account-issuer", "webhook-deny", "webhook-allow",
		"audit-log-keep", "audit-log-stranger-size", "audit-log-event-size", "audit-log-chain",
	}
	shared := slices.DeleteFunc(config.Flags(), func(f config.Flag) bool { return slices.Contains(ours, f.Name) })
	return append(shared,
		config.Flag{
			Name: "etcd-servers", Field: "storage.url", Usage: "etcd servers to keep objects in: URL,URL",
			Read: func(urls string) (any, error) { return "etcd+" + urls, nil },
		},
		config.Flag{Name: "etcd-cafile", Field: "storage.caFile", Usage: "CA file to verify the etcd servers with"},
		config.Flag{Name: "etcd-certfile", Field: "storage.certFile", Usage: "client certificate for the etcd servers"},
		config.Flag{Name: "etcd-keyfile", Field: "storage.keyFile", Usage: "key of the client certificate for the etcd servers"},
	)
}

// standard is the configuration that kube-apiserver has without flags, where it is
// not that of serve.
func standard() *config.Document {
	d := config.New()
	d.Default("dataDir", "")
	d.Default("services.clusterIPs", "10.0.0.0/24")
	d.Default("authorization.modes", []string{server.ModeAlwaysAllow})
	d.Default("authentication.serviceAccounts.maxTokenExpiration", "0s")
	d.Default("audit.maxSize", 0)
	d.Default("audit.maxBackups", 0)
	d.Default("audit.keep", "0s")
	for _, field := range []string{"usernameHeaders", "groupHeaders", "uidHeaders", "extraHeaderPrefixes"} {
		d.Default("authentication.proxy."+field, []string{})
	}
	return d
}

// printVersion prints a version as the named program does.
func printVersion(to io.Writer, name string) error {
	_, err := fmt.Fprintf(to, "%s %s\n", name, controlplane.Version().GitVersion)
	return err
}
