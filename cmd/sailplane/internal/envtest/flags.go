package envtest

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// apiServer holds the flags of kube-apiserver. Each has the name and the
// meaning that it has there.
type apiServer struct {
	log       Logging
	verbosity int
	version   bool

	address, advertise string
	port               int
	certDir            string
	cert, key          string
	sni                []cliflag.NamedCertKey

	etcd                       etcd.Cluster
	etcdPrefix                 string
	storageBackend             string
	encryption                 string
	serviceRange, serviceNodes string

	authn           authnFlags
	account         accountFlags
	modes           []string
	authzWebhook    string
	authzConfig     string
	enable, disable []string
	privileged      bool

	garbage            bool
	fairness           bool
	requests, mutating int
	audit              auditing.Log
	features           []string
}

// authnFlags are the flags for authentication.
type authnFlags struct {
	anonymous bool
	clientCA  string
	tokens    string
	config    string
	webhook   string
	proxy     authn.Proxy
}

// accountFlags name the keys that sign and verify the tokens of service
// accounts.
type accountFlags struct {
	issuers []string
	keys    []string
	signing string
	part    serviceaccount.Tokens
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
	s.servingFlags(c)
	s.accessFlags(c)
	f := c.Flags()
	f.StringSliceVar(&s.etcd.Endpoints, "etcd-servers", nil, "etcd servers to keep objects in: URL,URL")
	f.StringVar(&s.etcdPrefix, "etcd-prefix", "/registry", "prefix of every key")
	f.StringVar(&s.etcd.CAFile, "etcd-cafile", "", "CA file to verify the etcd servers with")
	f.StringVar(&s.etcd.CertFile, "etcd-certfile", "", "client certificate for the etcd servers")
	f.StringVar(&s.etcd.KeyFile, "etcd-keyfile", "", "key of the client certificate for the etcd servers")
	f.StringVar(&s.storageBackend, "storage-backend", "etcd3", "etcd3")
	f.StringVar(&s.encryption, "encryption-provider-config", "", "EncryptionConfiguration file")
	f.StringVar(&s.serviceRange, "service-cluster-ip-range", "10.0.0.0/24", "network of the addresses of services, a CIDR")
	f.StringVar(&s.serviceNodes, "service-node-port-range", "30000-32767", "ports for services of type NodePort")
	f.BoolVar(&s.garbage, "enable-garbage-collector", true, "delete objects whose owners are gone; no other program does it")
	f.BoolVar(&s.fairness, "enable-priority-and-fairness", true, "obey FlowSchemas and PriorityLevelConfigurations")
	f.IntVar(&s.requests, "max-requests-inflight", 400, "requests served at a time, added to --max-mutating-requests-inflight")
	f.IntVar(&s.mutating, "max-mutating-requests-inflight", 200, "added to --max-requests-inflight")
	f.StringVar(&s.audit.Path, "audit-log-path", "", "file to write audit events to, or -")
	f.StringVar(&s.audit.PolicyFile, "audit-policy-file", "", "audit policy file")
	f.StringSliceVar(&s.features, "feature-gates", nil, "feature gates keep their defaults; other values only print a warning")
	f.BoolVar(&s.privileged, "allow-privileged", true, "true")
	f.IntVarP(&s.verbosity, "v", "v", 0, "verbosity of the log")
	f.BoolVar(&s.version, "version", false, "print the version")
	return c
}

func (s *apiServer) servingFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&s.address, "bind-address", "0.0.0.0", "address to listen on")
	f.IntVar(&s.port, "secure-port", 6443, "port to serve HTTPS on")
	f.StringVar(&s.advertise, "advertise-address", "", "address in the endpoints of the service kubernetes")
	f.StringVar(&s.certDir, "cert-dir", "/var/run/kubernetes", "directory of apiserver.crt and apiserver.key, created if missing")
	f.StringVar(&s.cert, "tls-cert-file", "", "serving certificate (default in --cert-dir)")
	f.StringVar(&s.key, "tls-private-key-file", "", "key of the serving certificate")
	f.Var(cliflag.NewNamedCertKeyArray(&s.sni), "tls-sni-cert-key", "further certificate: CERT,KEY, or CERT,KEY:NAME,NAME for some names")
}

func (s *apiServer) accessFlags(c *cobra.Command) {
	f := c.Flags()
	a, p, t := &s.authn, &s.authn.proxy, &s.account
	f.BoolVar(&a.anonymous, "anonymous-auth", true, "accept requests without credentials")
	f.StringVar(&a.clientCA, "client-ca-file", "", "CA file to verify client certificates with")
	f.StringVar(&a.tokens, "token-auth-file", "", "file of tokens and users")
	f.StringVar(&a.config, "authentication-config", "", "AuthenticationConfiguration file")
	f.StringVar(&a.webhook, "authentication-token-webhook-config-file", "", "kubeconfig of a webhook that reviews tokens")
	f.StringVar(&p.ClientCAFile, "requestheader-client-ca-file", "", "CA file to verify front proxies with")
	f.StringSliceVar(&p.AllowedNames, "requestheader-allowed-names", nil, "names that certificates of front proxies may have")
	f.StringSliceVar(&p.UsernameHeaders, "requestheader-username-headers", nil, "headers with the user name")
	f.StringSliceVar(&p.GroupHeaders, "requestheader-group-headers", nil, "headers with the groups")
	f.StringSliceVar(&p.UIDHeaders, "requestheader-uid-headers", nil, "headers with the UID")
	f.StringSliceVar(&p.ExtraHeaderPrefixes, "requestheader-extra-headers-prefix", nil, "prefixes of headers with extra fields of the user")
	f.StringArrayVar(&t.issuers, "service-account-issuer", nil, "issuer of service account tokens, an https URL; the first is used")
	f.StringArrayVar(&t.keys, "service-account-key-file", nil, "keys or certificates that verify service account tokens")
	f.StringVar(&t.signing, "service-account-signing-key-file", "", "key that signs service account tokens")
	f.StringSliceVar(&t.part.Audiences, "api-audiences", nil, "audiences of service account tokens (default the issuer)")
	f.DurationVar(&t.part.MaxExpiration, "service-account-max-token-expiration", 0, "maximum lifetime of service account tokens")
	f.StringSliceVar(&s.modes, "authorization-mode", nil, "RBAC, Webhook, AlwaysAllow, AlwaysDeny (default AlwaysAllow)")
	f.StringVar(&s.authzWebhook, "authorization-webhook-config-file", "", "kubeconfig of the authorization webhook")
	f.StringVar(&s.authzConfig, "authorization-config", "", "AuthorizationConfiguration file")
	f.StringSliceVar(&s.enable, "enable-admission-plugins", nil, "admission plugins to enable besides the default ones")
	f.StringSliceVar(&s.disable, "disable-admission-plugins", nil, "admission plugins to disable")
}

// printVersion prints a version as the named program does.
func printVersion(to io.Writer, name string) error {
	_, err := fmt.Fprintf(to, "%s %s\n", name, controlplane.Version().GitVersion)
	return err
}
