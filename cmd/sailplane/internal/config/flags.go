package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// environment begins the variables that stand for flags.
const environment = "SAILPLANE_"

// Flag sets a field from the command line, and from the environment.
type Flag struct {
	Name, Short string
	Field       string // such as "storage.url"
	Usage       string
	// Old is a name that the flag had: it goes on, hidden, with a warning.
	Old string
	// Read turns an argument into the value of the field, or into one element of a
	// list. Nil: text is taken as it is, and separated by commas for a list.
	Read func(text string) (any, error)
}

// list tells whether the flag adds to a list.
func (f Flag) list() bool { return kind(f.Field) == kindList }

// Flags are those of serve. Those that kube-apiserver has too mean the same here.
func Flags() []Flag {
	return slices.Concat(servingFlags(), storageFlags(), authenticationFlags(), authorizationFlags(), requestFlags(), limitFlags())
}

func servingFlags() []Flag {
	return []Flag{
		{Name: "listen", Field: "listen", Usage: "address to serve HTTPS at; port 0 picks a free one"},
		{Name: "advertise", Field: "advertise", Usage: "names and addresses that clients reach the server by, the first in the kubeconfig"},
		{Name: "data-dir", Field: "dataDir", Usage: "directory for keys, certificates and the default storage"},
		{
			Name: "kubeconfig", Field: "kubeconfig",
			Usage: "file to write the administrator's kubeconfig to (default admin.kubeconfig in the data directory)",
		},
		{Name: "tls-cert-file", Field: "serving.certFile", Usage: "serving certificate"},
		{Name: "tls-private-key-file", Field: "serving.keyFile", Usage: "key of the serving certificate"},
		{
			Name: "tls-sni-cert-key", Field: "serving.certificates", Read: namedCertificate,
			Usage: "further certificate: CERT,KEY, or CERT,KEY:NAME,NAME for some names; may be repeated",
		},
		{Name: "drain", Field: "serving.drain", Usage: "how long requests may run after the server was told to stop"},
		{
			Name: "resources", Field: "resources",
			Usage: "what is served: all, standard, API groups such as core or apps, resources such as pods or jobs.batch",
		},
		{Name: "crds", Field: "crds", Usage: "directory of CustomResourceDefinitions to apply before the server is ready"},
		{Name: "enable-garbage-collector", Field: "garbageCollection", Usage: "delete objects whose owners are gone"},
		{
			Name: "service", Field: "services.addresses", Read: address,
			Usage: "where a Service runs that webhooks, conversions or APIServices name: NAMESPACE/NAME=HOST:PORT; may be repeated",
		},
		{Name: "service-cluster-ip-range", Field: "services.clusterIPs", Usage: "network that Services get their cluster IP from, a CIDR"},
		{Name: "service-node-port-range", Field: "services.nodePorts", Usage: "ports for Services of type NodePort"},
		{Name: "backup-dir", Field: "backup.directory", Usage: "directory where the server puts backups by itself (default it takes none)"},
		{Name: "backup-every", Field: "backup.every", Usage: "time between two backups"},
		{Name: "backup-keep", Field: "backup.keep", Usage: "how many backups stay in the directory"},
		{Name: "storage-api", Field: "storageAPI.enabled", Usage: "lend storage to aggregated API servers, by EtcdStorages"},
		{
			Name: "storage-api-address", Field: "storageAPI.address",
			Usage: "HOST or HOST:PORT by which aggregated API servers reach this one (default as --advertise, or --listen)",
		},
		{Name: "otlp", Field: "tracing.endpoint", Usage: "collector of OpenTelemetry traces, HOST:PORT of OTLP/gRPC (default none)"},
		{
			Name: "otlp-samples", Field: "tracing.samplesPerMillion",
			Usage: "how many of a million requests are traced if their callers do not decide",
		},
		{Name: "v", Short: "v", Field: "log.verbosity", Usage: "log verbosity: 0 quiet, 1 start-up phases, 2 and up as Kubernetes"},
		{Name: "log-format", Field: "log.format", Usage: "text or json"},
		{Name: "profiling", Field: "profiling", Usage: "serve /debug/pprof to administrators"},
	}
}

func storageFlags() []Flag {
	return []Flag{
		{Name: "storage", Field: "storage.url", Usage: "where objects are kept: " + strings.Join(StorageForms(), ", ") +
			" (default etcd: in the data directory)"},
		{Name: "etcd-prefix", Field: "storage.prefix", Usage: "what every key in the storage starts with"},
		{Name: "storage-history", Field: "storage.history", Usage: "minimum time that the storage keeps old versions, for watches"},
		{
			Name: "storage-history-limit", Field: "storage.historyLimit",
			Usage: "maximum size of old versions, whatever their age " +
				"(default 48Mi in an embedded etcd, 32Mi in memory, 256Mi in SQLite, PostgreSQL and MySQL)",
		},
		{Name: "storage-quota", Field: "storage.quota", Usage: "size at which an embedded etcd refuses writes (default 8Gi)"},
		{Name: "storage-ca", Field: "storage.caFile", Usage: "CA file to verify an external storage with"},
		{Name: "storage-cert", Field: "storage.certFile", Usage: "client certificate file for an external storage"},
		{Name: "storage-key", Field: "storage.keyFile", Usage: "client key file for an external storage"},
		{
			Name: "storage-password-file", Field: "storage.passwordFile",
			Usage: "file with the password of a database (default the environment variable " + environment + "STORAGE_PASSWORD)",
		},
		{
			Name: "storage-connections", Field: "storage.connections",
			Usage: "how many connections to PostgreSQL or MySQL read at most (default 8)",
		},
		{
			Name: "storage-poll-interval", Field: "storage.pollInterval",
			Usage: "how often to look for writes of other servers (default: PostgreSQL tells of them, and MySQL is asked each 20ms)",
		},
		{
			Name: "storage-share-key-file", Field: "storage.shareKeyFile",
			Usage: "file with a key that all servers on the storage have, to share an authority, an administrator and the key of tokens",
		},
		{
			Name: "encryption-provider-config", Old: "encryption-config", Field: "encryption.configFile",
			Usage: "EncryptionConfiguration file that says which resources are stored encrypted, and how (default none)",
		},
	}
}

func authenticationFlags() []Flag {
	return []Flag{
		{
			Name: "anonymous-paths", Field: "authentication.anonymousPaths",
			Usage: `paths that callers without credentials may ask for; "*": all, if they are authorized; "": none`,
		},
		{Name: "client-ca-file", Field: "authentication.clientCAFile", Usage: "CA file to verify client certificates with"},
		{Name: "token-auth-file", Field: "authentication.tokenFile", Usage: "file of tokens and users"},
		{Name: "authentication-config", Field: "authentication.configFile", Usage: "AuthenticationConfiguration file"},
		{
			Name: "authentication-token-webhook-config-file", Field: "authentication.webhook.configFile",
			Usage: "kubeconfig of a webhook that reviews tokens",
		},
		{Name: "authentication-token-webhook-cache-ttl", Field: "authentication.webhook.cacheTTL", Usage: "how long its answers are kept"},
		{Name: "requestheader-client-ca-file", Field: "authentication.proxy.clientCAFile", Usage: "CA file to verify front proxies with"},
		{
			Name: "requestheader-allowed-names", Field: "authentication.proxy.allowedNames",
			Usage: "names that certificates of front proxies may have",
		},
		{Name: "requestheader-username-headers", Field: "authentication.proxy.usernameHeaders", Usage: "headers with the user name"},
		{Name: "requestheader-group-headers", Field: "authentication.proxy.groupHeaders", Usage: "headers with the groups"},
		{Name: "requestheader-uid-headers", Field: "authentication.proxy.uidHeaders", Usage: "headers with the UID"},
		{
			Name: "requestheader-extra-headers-prefix", Field: "authentication.proxy.extraHeaderPrefixes",
			Usage: "prefixes of headers with extra fields of the user",
		},
		{
			Name: "service-account-issuer", Field: "authentication.serviceAccounts.issuer",
			Usage: "issuer of service account tokens, an https URL",
		},
		{
			Name: "service-account-signing-key-file", Field: "authentication.serviceAccounts.signingKeyFile",
			Usage: "key that signs service account tokens, and further ones that verify them (default one in the data directory)",
		},
		{
			Name: "api-audiences", Field: "authentication.serviceAccounts.audiences",
			Usage: "audiences of service account tokens (default the issuer)",
		},
		{
			Name: "service-account-max-token-expiration", Field: "authentication.serviceAccounts.maxTokenExpiration",
			Usage: "maximum lifetime of service account tokens; longer requests are shortened, 0 is no limit",
		},
	}
}

func authorizationFlags() []Flag {
	return []Flag{
		{Name: "authorization-mode", Field: "authorization.modes", Usage: "RBAC, Webhook, AlwaysAllow, AlwaysDeny, in order"},
		{
			Name: "authorization-webhook-config-file", Field: "authorization.webhookConfigFile",
			Usage: "kubeconfig of the authorization webhook",
		},
		{Name: "authorization-config", Field: "authorization.configFile", Usage: "AuthorizationConfiguration file"},
		{Name: "enable-admission-plugins", Field: "admission.enable", Usage: "admission plugins to enable besides the default ones"},
		{Name: "disable-admission-plugins", Field: "admission.disable", Usage: "admission plugins to disable"},
		{
			Name: "webhook-deny", Field: "admission.webhooks.deny",
			Usage: "networks in which admission and conversion webhooks are not allowed; private: all outside the public internet",
		},
		{
			Name: "webhook-allow", Field: "admission.webhooks.allow",
			Usage: "networks in denied ones in which webhooks are allowed, such as 127.0.0.0/8",
		},
	}
}

func requestFlags() []Flag {
	return []Flag{
		{
			Name: "audit-log-path", Old: "audit-log", Field: "audit.path",
			Usage: "file to write audit events to, - for standard output, or none (default audit.log in the data directory)",
		},
		{
			Name: "audit-policy-file", Old: "audit-policy", Field: "audit.policyFile",
			Usage: "audit policy file (default every write, every read of Secrets and every backup, without bodies)",
		},
		{Name: "audit-log-format", Field: "audit.format", Usage: "json or legacy"},
		{Name: "audit-log-mode", Field: "audit.mode", Usage: "blocking, blocking-strict or batch"},
		{Name: "audit-log-maxsize", Field: "audit.maxSize", Read: units("%dMi", 1), Usage: "megabytes at which the audit log is renamed"},
		{Name: "audit-log-maxbackup", Field: "audit.maxBackups", Usage: "how many renamed audit logs are kept"},
		{
			Name: "audit-log-maxage", Field: "audit.maxAge", Read: units("%dh", 24),
			Usage: "days that renamed audit logs are kept (default for ever)",
		},
		{Name: "audit-log-keep", Field: "audit.keep", Usage: "how long an audit event is kept for sure; 0s: while there is room"},
		{
			Name: "audit-log-stranger-size", Field: "audit.strangerSize",
			Usage: "what callers who cannot log in may add to the audit log in a day",
		},
		{Name: "audit-log-event-size", Field: "audit.eventSize", Usage: "size of one audit event; longer fields are cut"},
		{Name: "audit-log-chain", Field: "audit.chain", Usage: "have each line of the audit log carry the hash of the one before"},
		{Name: "audit-webhook-config-file", Field: "audit.webhook.configFile", Usage: "kubeconfig of a server to send audit events to"},
		{Name: "audit-webhook-mode", Field: "audit.webhook.mode", Usage: "batch, blocking or blocking-strict"},
	}
}

func limitFlags() []Flag {
	return []Flag{
		{
			Name: "enable-priority-and-fairness", Field: "limits.priorityAndFairness",
			Usage: "queue requests by FlowSchemas and PriorityLevelConfigurations",
		},
		{
			Name: "max-requests-inflight", Field: "limits.maxRequestsInFlight",
			Usage: "requests served at a time, added to --max-mutating-requests-inflight",
		},
		{Name: "max-mutating-requests-inflight", Field: "limits.maxMutatingRequestsInFlight", Usage: "added to --max-requests-inflight"},
		{
			Name: "limits", Field: "limits.mode",
			Usage: "what happens to requests over a --limit-...: enforce refuses them, warn logs and counts them, off does nothing",
		},
		{Name: "limit-requests-per-second", Field: "limits.requestsPerSecond", Usage: "requests per second of each user; 0: no limit"},
		{Name: "limit-burst", Field: "limits.burst", Usage: "how many of them may come at once (default 20 times as many)"},
		{
			Name: "limit-requests-at-once", Field: "limits.requestsAtOnce",
			Usage: "requests of each user that run at the same time, without watches; 0: no limit",
		},
		{Name: "limit-watches", Field: "limits.watches", Usage: "open watches of each user; 0: no limit"},
		{Name: "limit-write-rate", Field: "limits.writeRate", Usage: "bytes that each user may have stored per second; 0: no limit"},
		{Name: "limit-write-burst", Field: "limits.writeBurst", Usage: "how many of them at once (default 32 times as many)"},
		{
			Name: "limit-namespace-factor", Field: "limits.namespaceFactor",
			Usage: "how many times as much the accounts of a namespace may together, and all who write into it",
		},
		{Name: "limit-object-size", Field: "limits.objectSize", Usage: "maximum size of a stored object; 0: that of the storage"},
		{
			Name: "limit-objects-per-resource", Field: "limits.objectsPerResource",
			Usage: "objects of a resource in each namespace; 0: no limit",
		},
		{
			Name: "limit-stored-size", Field: "limits.storedSize",
			Usage: "size of all stored objects of each namespace, and of those without one; 0: no limit",
		},
		{
			Name: "limit-stored-size-per-user", Field: "limits.storedSizePerUser",
			Usage: "size of all stored objects that each user created since the server started; 0: no limit",
		},
	}
}

// address reads NAMESPACE/NAME=HOST:PORT.
func address(text string) (any, error) {
	service, at, ok := strings.Cut(text, "=")
	if !ok {
		return nil, errors.New("want NAMESPACE/NAME=HOST:PORT")
	}
	return Address{Service: service, Address: at}, nil
}

// namedCertificate reads CERT,KEY or CERT,KEY:NAME,NAME.
func namedCertificate(text string) (any, error) {
	files, hosts, _ := strings.Cut(text, ":")
	cert, key, ok := strings.Cut(files, ",")
	if !ok || cert == "" || key == "" {
		return nil, errors.New("want CERT,KEY or CERT,KEY:NAME,NAME")
	}
	return Certificate{CertFile: cert, KeyFile: key, Names: split(hosts)}, nil
}

// units reads a number of kube-apiserver's unit into one of the file.
func units(format string, factor int) func(string) (any, error) {
	return func(text string) (any, error) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return nil, errors.New("want a whole number")
		}
		return fmt.Sprintf(format, n*factor), nil
	}
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// Given are the flags of a command, and what was given for them.
type Given struct {
	set   *pflag.FlagSet
	flags []Flag
}

// Register adds flags to those of a command. The defaults are those of the document.
func Register(set *pflag.FlagSet, flags []Flag, defaults *Document) *Given {
	for _, f := range flags {
		v := &argument{flag: f, shown: defaults.show(f.Field)}
		p := set.VarPF(v, f.Name, f.Short, f.Usage)
		if v.Type() == "bool" {
			p.NoOptDefVal = "true"
		}
		if f.Old != "" {
			old := set.VarPF(v, f.Old, "", f.Usage)
			old.NoOptDefVal = p.NoOptDefVal
			_ = set.MarkDeprecated(f.Old, "it is --"+f.Name+" now") // fails for unknown flags only
		}
	}
	return &Given{set: set, flags: flags}
}

// Apply adds to a document what the environment says, and then what the flags say.
func (g *Given) Apply(d *Document) error {
	var fromFlags, fromEnvironment []error
	for _, f := range g.flags {
		if text := os.Getenv(f.Variable()); text != "" {
			a := &argument{flag: f}
			err := a.Set(text)
			if err == nil {
				err = d.Set(f.Field, a.value(), f.Variable())
			} else {
				err = fmt.Errorf("%s: %q: %w", f.Variable(), text, err)
			}
			fromEnvironment = append(fromEnvironment, err)
		}
	}
	for _, f := range g.flags {
		if a, ok := g.set.Lookup(f.Name).Value.(*argument); ok && a.given != nil {
			fromFlags = append(fromFlags, d.Set(f.Field, a.value(), "--"+f.Name))
		}
	}
	return errors.Join(append(fromEnvironment, fromFlags...)...)
}

// Variable is the name in the environment.
func (f Flag) Variable() string {
	return environment + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
}

// argument is the value of a flag: what was given, for the document.
type argument struct {
	flag  Flag
	shown string
	given []any
}

func (a *argument) String() string { return a.shown }

// Type implements pflag.Value, for the help.
func (a *argument) Type() string { return kind(a.flag.Field) }

// Set implements pflag.Value.
func (a *argument) Set(text string) error {
	read := a.flag.Read
	switch {
	case read != nil:
		v, err := read(text)
		if err != nil {
			return err
		}
		a.given = append(a.given, v)
	case a.flag.list():
		if a.given == nil {
			a.given = []any{} // "" is an empty list
		}
		for _, s := range split(text) {
			a.given = append(a.given, s)
		}
	default:
		a.given = []any{text}
	}
	return nil
}

// value is that of the field.
func (a *argument) value() any {
	if a.flag.list() {
		return a.given
	}
	last := a.given[len(a.given)-1]
	switch kind(a.flag.Field) {
	case "string", kindDuration, kindSize:
		return last
	}
	// A number or a truth value is one in the file, too; what is none is an error there.
	var plain any
	if text, ok := last.(string); ok && yaml.Unmarshal([]byte(text), &plain) == nil && plain != nil {
		return plain
	}
	return last
}

// StorageForms are the values of storage.url.
func StorageForms() []string {
	return []string{
		"memory", "sqlite:PATH", "etcd:DIR", "etcd+http(s)://HOST:PORT,...",
		"postgres://USER@HOST/DATABASE", "mysql://USER@HOST/DATABASE", "nats://USER@HOST?bucket=NAME&sync=always", "t4://DIR",
	}
}
