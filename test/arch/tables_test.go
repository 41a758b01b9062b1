package arch

// module is the path of the library's module.
const module = "github.com/sailplane-dev/sailplane"

// mayImport says which packages of this module each package may import,
// outside its tests. Paths are relative to the module. "x/..." means x and
// everything below it; "pkg/..." never includes pkg/internal, which has to be
// named.
//
// The direction is: core imports no part, parts import core and never each
// other, and programs import what a user of the library could import.
var mayImport = map[string][]string{
	// Core: the builder, the server, the plan.
	"pkg/openapi": {},
	"pkg/feed":    {"pkg/internal/keys", "pkg/internal/revision", "pkg/internal/signal", "pkg/internal/stored"},
	"pkg/controlplane": {
		"pkg/feed", "pkg/openapi", "pkg/internal/addresses", "pkg/internal/bodies", "pkg/internal/callers", "pkg/internal/election", "pkg/internal/format", "pkg/internal/keys",
		"pkg/internal/loopback", "pkg/internal/metrics",
		"pkg/internal/openapi/...", "pkg/internal/signal", "pkg/internal/stack", "pkg/internal/store", "pkg/internal/tied", "pkg/internal/turns", "pkg/internal/upstream",
		"pkg/internal/vouched",
	},
	"pkg/apis": {
		"pkg/controlplane", "pkg/internal/kept", "pkg/internal/openapi/...", "pkg/internal/polled", "pkg/internal/projected", "pkg/internal/query", "pkg/internal/rules",
		"pkg/internal/stream", "pkg/internal/tied", "pkg/internal/upstream", "pkg/keep",
	},
	"pkg/apis/apitest":           {"pkg/controlplane", "pkg/apis"},
	"pkg/apis/apitest/fruit/...": {"pkg/apis/apitest/fruit/..."}, // the types that tests serve

	// Storage of one's own: the interface that apis serves resources from, and keepers.
	"pkg/keep":           {},
	"pkg/keep/keeptest":  {"pkg/keep"},
	"pkg/keep/sqltable":  {"pkg/keep"}, // and no driver
	"pkg/keep/filestore": {"pkg/keep"},

	// Parts.
	"pkg/builtin/core": {
		"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/...", "pkg/internal/catalog", "pkg/internal/check",
		"pkg/internal/signal", "pkg/internal/terminator",
	},
	"pkg/builtin/coordination":          {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/..."},
	"pkg/builtin/admissionregistration": {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/...", "pkg/internal/check", "pkg/internal/retry"},
	"pkg/builtin/authentication":        {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/..."},
	"pkg/builtin/authorization":         {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/..."},
	"pkg/builtin/certificates":          {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/...", "pkg/internal/rules/...", "pkg/internal/check", "pkg/internal/retry"},
	"pkg/builtin/rbac":                  {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/...", "pkg/internal/rbac", "pkg/internal/check"},
	"pkg/builtin/endpoints":             {"pkg/controlplane", "pkg/apis", "pkg/internal/openapi/...", "pkg/internal/check"},
	"pkg/builtin/kube":                  {"pkg/controlplane", "pkg/apis", "pkg/internal/rules/...", "pkg/internal/check"},

	"pkg/crd": {
		"pkg/controlplane", "pkg/openapi", "pkg/internal/dialing", "pkg/internal/openapi/...", "pkg/internal/signal", "pkg/internal/store", "pkg/internal/turns", "pkg/internal/upstream",
	},
	"pkg/aggregator": {
		"pkg/controlplane", "pkg/openapi", "pkg/internal/dialing", "pkg/internal/follow", "pkg/internal/loopback", "pkg/internal/openapi/...",
		"pkg/internal/pki", "pkg/internal/retry", "pkg/internal/signal", "pkg/internal/statuscode", "pkg/internal/store", "pkg/internal/turns", "pkg/internal/upstream", "pkg/internal/vouched",
	},
	"pkg/authn": {"pkg/controlplane", "pkg/internal/dialing", "pkg/internal/follow", "pkg/internal/secretfile", "pkg/internal/pki", "pkg/internal/check"},
	"pkg/authz": {"pkg/controlplane", "pkg/builtin/rbac", "pkg/internal/dialing", "pkg/internal/follow", "pkg/internal/secretfile", "pkg/internal/rbac", "pkg/internal/signal"},
	"pkg/admit": {"pkg/controlplane", "pkg/internal/dialing"},
	"pkg/backup": {
		"pkg/controlplane", "pkg/encryption", "pkg/internal/format", "pkg/internal/keys", "pkg/internal/page", "pkg/internal/seal",
		"pkg/internal/stored", "pkg/internal/transfer",
	},
	"pkg/auditing":   {"pkg/controlplane", "pkg/internal/callers", "pkg/internal/follow", "pkg/internal/metrics"},
	"pkg/encryption": {"pkg/controlplane", "pkg/internal/secretfile"},
	"pkg/fairness": {
		"pkg/controlplane", "pkg/feed", "pkg/internal/bodies", "pkg/internal/callers", "pkg/internal/loopback", "pkg/internal/metrics",
		"pkg/internal/pauses", "pkg/internal/signal",
	},
	"pkg/extend":          {"pkg/controlplane", "pkg/apis", "pkg/extend/v1alpha1", "pkg/internal/dialing", "pkg/internal/pki"},
	"pkg/extend/v1alpha1": {},
	"pkg/insight":         {"pkg/controlplane", "pkg/feed", "pkg/internal/page", "pkg/internal/signal", "pkg/internal/statuscode"},
	"pkg/lifecycle":       {"pkg/controlplane", "pkg/internal/catalog", "pkg/feed", "pkg/internal/retry"},
	"pkg/middleware":      {"pkg/controlplane", "pkg/internal/loopback"},
	"pkg/quota":           {"pkg/controlplane", "pkg/builtin/core", "pkg/feed", "pkg/internal/retry"},
	"pkg/services":        {"pkg/controlplane"},
	"pkg/verify":          {},
	"pkg/serviceaccount":  {"pkg/controlplane", "pkg/internal/follow", "pkg/internal/pki", "pkg/internal/secretfile", "pkg/internal/openapi/..."},
	"pkg/sharing": {
		"pkg/controlplane", "pkg/internal/follow", "pkg/internal/pki", "pkg/internal/seal", "pkg/internal/signal",
	},
	"pkg/storageapi": {
		"pkg/controlplane", "pkg/apis", "pkg/backup", "pkg/feed", "pkg/internal/dialing", "pkg/internal/etcdserve", "pkg/internal/keys",
		"pkg/internal/metrics", "pkg/internal/page", "pkg/internal/pki", "pkg/internal/retry", "pkg/internal/signal", "pkg/storageapi/v1alpha1",
	},
	"pkg/storageapi/v1alpha1": {},
	"pkg/tracing":             {"pkg/controlplane"},

	// Bundles of parts, for programs that want no choice.
	"pkg/preset": {
		"pkg/controlplane", "pkg/admit", "pkg/builtin/admissionregistration",
		"pkg/builtin/authentication", "pkg/builtin/authorization", "pkg/builtin/certificates",
		"pkg/builtin/coordination", "pkg/builtin/core", "pkg/lifecycle", "pkg/quota", "pkg/services",
	},

	// A control plane for tests.
	"pkg/planetest": {"pkg/...", "pkg/internal/signal"},

	// Storage.
	"pkg/storage": {"pkg/controlplane", "pkg/internal/format", "pkg/internal/transfer"}, // what is done with any of them
	"pkg/storage/etcd": {
		"pkg/controlplane", "pkg/internal/etcdclient", "pkg/internal/filelock", "pkg/internal/metrics", "pkg/internal/revision", "pkg/internal/signal",
	},
	"pkg/storage/memory": {"pkg/controlplane", "pkg/internal/etcdapi", "pkg/internal/memorylog", "pkg/internal/revision"},
	"pkg/storage/sqlite": {"pkg/controlplane", "pkg/internal/etcdapi", "pkg/internal/filelock", "pkg/internal/revision", "pkg/internal/signal"},
	"pkg/storage/kine":   {"pkg/controlplane", "pkg/internal/etcdclient", "pkg/internal/remote"},

	"pkg/storage/serving":  {"pkg/controlplane", "pkg/internal/etcdserve", "pkg/internal/pki"},
	"pkg/storage/postgres": {"pkg/controlplane", "pkg/internal/remote", "pkg/internal/revision", "pkg/internal/sqllog"},
	"pkg/storage/mysql":    {"pkg/controlplane", "pkg/internal/remote", "pkg/internal/revision", "pkg/internal/sqllog"},

	"pkg/storage/kine/nats": {"pkg/controlplane", "pkg/storage/kine"},
	"pkg/storage/kine/t4":   {"pkg/controlplane", "pkg/storage/kine"},

	// Inside.
	"pkg/internal/addresses":  {"pkg/internal/pauses", "pkg/internal/turns"},
	"pkg/internal/callers":    {},
	"pkg/internal/catalog":    {},
	"pkg/internal/check":      {},
	"pkg/internal/terminator": {"pkg/internal/catalog", "pkg/feed", "pkg/internal/retry", "pkg/internal/signal"},
	"pkg/internal/dialing":    {"pkg/internal/secretfile", "pkg/internal/turns"},
	"pkg/internal/etcdclient": {},
	"pkg/internal/pauses":     {},
	"pkg/internal/turns":      {},
	"pkg/internal/keys":       {},
	"pkg/internal/format":     {"pkg/internal/keys"},
	"pkg/internal/page":       {"pkg/controlplane"},
	"pkg/internal/transfer":   {"pkg/controlplane", "pkg/internal/format"},
	"pkg/internal/stack":      {},
	"pkg/internal/stream":     {"pkg/internal/callers", "pkg/internal/tied"},
	"pkg/internal/tied":       {},
	"pkg/internal/signal":     {},
	"pkg/internal/statuscode": {},
	"pkg/internal/filelock":   {},
	"pkg/internal/etcdapi": {
		"pkg/internal/etcdclient", "pkg/internal/keys", "pkg/internal/metrics", "pkg/internal/revision", "pkg/internal/signal",
	},
	"pkg/internal/etcdserve": {},
	"pkg/internal/revision":  {},
	"pkg/internal/remote":    {"pkg/internal/secretfile"},
	"pkg/internal/sqllog":    {"pkg/internal/etcdapi", "pkg/internal/revision", "pkg/internal/signal"},
	"pkg/internal/follow":    {},
	"pkg/internal/leaktest":  {},
	"pkg/internal/election":  {},
	"pkg/internal/loopback":  {"pkg/internal/election"},
	"pkg/internal/vouched":   {},
	"pkg/internal/metrics":   {},
	"pkg/internal/memorylog": {"pkg/internal/revision"},
	"pkg/internal/polled": {
		"pkg/internal/etcdapi", "pkg/internal/memorylog", "pkg/internal/revision", "pkg/internal/source", "pkg/internal/store",
	},
	"pkg/internal/openapi/documents": {"pkg/openapi", "pkg/internal/openapi/reflected"},
	"pkg/internal/openapi/meta":      {},
	"pkg/internal/openapi/reflected": {},
	"pkg/internal/query":             {},
	"pkg/internal/retry":             {},
	"pkg/internal/pki":               {"pkg/internal/filelock"},
	"pkg/internal/secretfile":        {},
	"pkg/internal/seal":              {"pkg/internal/secretfile"},
	"pkg/internal/stored":            {},
	"pkg/internal/rbac":              {},
	"pkg/internal/rules/...":         {"pkg/internal/rules/..."}, // generated: types contain types of other groups
	"pkg/storage/storagetest":        {"pkg/controlplane"},
	"pkg/internal/store": {
		"pkg/internal/bodies", "pkg/internal/election", "pkg/internal/keys", "pkg/internal/metrics", "pkg/internal/revision", "pkg/internal/signal",
		"pkg/internal/source", "pkg/internal/stack", "pkg/internal/turns", "pkg/internal/upstream",
	},
	"pkg/internal/kept":      {"pkg/internal/signal", "pkg/internal/source", "pkg/internal/store", "pkg/internal/upstream", "pkg/keep"},
	"pkg/internal/projected": {"pkg/internal/source", "pkg/internal/store"},
	"pkg/internal/source":    {},
	"pkg/internal/bodies":    {},
	"pkg/internal/upstream":  {},

	// Programs. They see what a user sees: nothing of pkg/internal.
	"cmd/sailplane":                   {"pkg/...", "cmd/sailplane/internal/..."},
	"cmd/sailplane/internal/config":   {}, // says nothing of parts: server makes them
	"cmd/sailplane/internal/envtest":  {"pkg/...", "cmd/sailplane/internal/config", "cmd/sailplane/internal/server"},
	"cmd/sailplane/internal/heap":     {},
	"cmd/sailplane/internal/threads":  {},
	"cmd/sailplane/internal/served":   {}, // a client of any server
	"cmd/sailplane/internal/server":   {"pkg/...", "cmd/sailplane/internal/config"},
	"cmd/sailplane/internal/manifest": {"cmd/sailplane/internal/served"},
	"examples/...":                    {"pkg/...", "examples/..."},
	"hack/...":                        {"pkg/internal/openapi/...", "hack/..."},
}

// home is where a dependency may be imported outside tests, and why only there.
type home struct {
	packages []string // as in mayImport; none: nowhere
	reason   string
}

// onlyIn gives each heavy dependency its one home. The longest path that
// matches an import decides.
var onlyIn = map[string]home{
	"k8s.io/kubernetes": {
		nil, "it is not supported as a library and brings 500 packages: see docs/adr/0001",
	},
	"k8s.io/apiextensions-apiserver": {
		[]string{"pkg/crd"}, "a program without CRDs must not link them",
	},
	"k8s.io/kube-aggregator": {
		[]string{"pkg/aggregator"}, "a program without APIServices must not link them",
	},
	"k8s.io/apiserver/pkg/server/options/encryptionconfig": {
		[]string{"pkg/encryption"}, "a program that encrypts nothing must not link KMS clients",
	},
	"github.com/coreos/go-oidc": {
		[]string{"pkg/authn"}, "a program without issuers must not link them",
	},
	"go.etcd.io/etcd/server/v3": {
		[]string{"pkg/storage/etcd"}, "a program on another storage must not link etcd's server",
	},
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter": {
		[]string{"pkg/internal/etcdclient"}, "it turns a server in the process into a client, without a socket",
	},
	"k8s.io/cri-streaming": {
		[]string{"pkg/internal/stream"}, "terminals and forwarded ports are served in one place",
	},
	"go.uber.org/zap": {
		[]string{"pkg/storage/etcd"}, "etcd's server logs with it; everything else logs through the context",
	},
	"github.com/sirupsen/logrus": {
		[]string{"pkg/storage/kine"}, "kine logs with it; everything else logs through the context",
	},
	"github.com/k3s-io/kine": {
		[]string{"pkg/storage/kine/..."},
		"who keeps objects elsewhere must not link kine",
	},
	"github.com/k3s-io/kine/pkg/drivers": {
		[]string{"pkg/storage/kine/..."},
		"the types all drivers share are light",
	},
	"github.com/k3s-io/kine/pkg/drivers/pgsql": {nil, "it loses events: pkg/storage/postgres does not"},
	"github.com/k3s-io/kine/pkg/drivers/mysql": {nil, "it loses events: pkg/storage/mysql does not"},
	"github.com/jackc": {
		[]string{"pkg/storage/postgres"}, "each driver is linked by its own package only",
	},
	"github.com/go-sql-driver": {
		[]string{"pkg/storage/mysql"}, "each driver is linked by its own package only",
	},
	"github.com/k3s-io/kine/pkg/drivers/nats": {
		[]string{"pkg/storage/kine/nats"}, "each driver is linked by its own package only",
	},
	"github.com/nats-io": {
		[]string{"pkg/storage/kine/nats"}, "each driver is linked by its own package only",
	},
	"github.com/k3s-io/kine/pkg/drivers/t4": {
		[]string{"pkg/storage/kine/t4"}, "each driver is linked by its own package only",
	},
	"github.com/nats-io/nats-server": {nil, "a storage is no server of NATS"},
	"github.com/k3s-io/kine/pkg/endpoint": {
		nil, "it links every driver, a NATS server and an S3 engine",
	},
	"github.com/mattn/go-sqlite3": {
		[]string{"pkg/storage/sqlite"}, "each driver is linked by its own package only",
	},
	"modernc.org/sqlite": {
		[]string{"pkg/storage/sqlite", "examples/machines"}, "each driver is linked by its own package only; a program chooses one",
	},
	"github.com/spf13/cobra": {
		[]string{"cmd/...", "examples/clusterregistry"}, "a library has no command line",
	},
	"github.com/spf13/pflag": {
		[]string{"cmd/..."}, "a library has no command line",
	},
	"flag": {
		[]string{"cmd/...", "examples/...", "hack/...", "pkg/internal/upstream"}, "a library has no command line; klog's settings are flags",
	},
	"testing": {
		[]string{"pkg/internal/leaktest", "pkg/storage/storagetest", "pkg/planetest", "pkg/apis/apitest", "pkg/keep/keeptest"},
		"a program must not link the test framework",
	},
}

// weight is what a program that imports some packages must not link.
type weight struct {
	packages []string
	without  []string
	reason   string
}

// weights are the promises that heavy things arrive by import.
var weights = map[string]weight{
	"typed groups in memory": {
		packages: []string{
			"pkg/controlplane", "pkg/builtin/core", "pkg/builtin/kube", "pkg/apis", "pkg/lifecycle", "pkg/storage/memory",
			"pkg/authn", "pkg/authz", "pkg/admit", "pkg/middleware",
		},
		without: []string{
			"k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator",
			"go.etcd.io/etcd/server/v3/embed", "go.etcd.io/etcd/server/v3/storage", "go.etcd.io/bbolt", "go.etcd.io/raft/v3",
			"github.com/mattn/go-sqlite3", "modernc.org/sqlite", "github.com/jackc", "github.com/go-sql-driver", "github.com/nats-io",
			"github.com/t4db", "testing",
		},
		reason: "a server without CRDs, aggregation and a database links none of them",
	},
	"tables and files": {
		packages: []string{"pkg/keep/sqltable", "pkg/keep/filestore"},
		without: []string{
			"github.com/mattn/go-sqlite3", "modernc.org/sqlite", "github.com/jackc", "github.com/go-sql-driver", "k8s.io/apiserver", "testing",
		},
		reason: "a keeper of objects is no server, and a table has whatever driver the program has",
	},
	"CRDs": {
		packages: []string{"pkg/crd"},
		without:  []string{"k8s.io/kube-aggregator", "go.etcd.io/etcd/server/v3", "github.com/k3s-io/kine", "testing"},
		reason:   "CRDs choose neither a storage nor aggregation",
	},
	"aggregation": {
		packages: []string{"pkg/aggregator"},
		without:  []string{"k8s.io/apiextensions-apiserver", "go.etcd.io/etcd/server/v3", "github.com/k3s-io/kine", "testing"},
		reason:   "aggregation chooses no storage and works without CRDs",
	},
	"embedded etcd": {
		packages: []string{"pkg/storage/etcd"},
		without:  []string{"github.com/k3s-io/kine", "k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator", "testing"},
		reason:   "etcd needs no kine",
	},
	"sqlite": {
		packages: []string{"pkg/storage/sqlite"},
		without: []string{
			"go.etcd.io/etcd/server/v3/embed", "go.etcd.io/etcd/server/v3/storage", "go.etcd.io/bbolt", "go.etcd.io/raft/v3",
			"github.com/jackc", "github.com/go-sql-driver", "github.com/nats-io",
			"k8s.io/apiextensions-apiserver", "k8s.io/kube-aggregator", "testing",
		},
		reason: "sqlite needs neither etcd's server nor another database",
	},
	"kine's runner": {
		packages: []string{"pkg/storage/kine"},
		without: []string{
			"github.com/jackc", "github.com/go-sql-driver", "github.com/nats-io", "github.com/t4db", "github.com/mattn/go-sqlite3",
			"modernc.org/sqlite", "testing",
		},
		reason: "what all of kine's drivers share links none of them; kine itself imports etcd's server",
	},
	"postgres": {
		packages: []string{"pkg/storage/postgres"},
		without:  []string{"github.com/k3s-io/kine", "go.etcd.io/etcd/server/v3/embed", "github.com/go-sql-driver", "modernc.org/sqlite", "testing"},
		reason:   "one database needs no other",
	},
	"mysql": {
		packages: []string{"pkg/storage/mysql"},
		without:  []string{"github.com/k3s-io/kine", "go.etcd.io/etcd/server/v3/embed", "github.com/jackc", "modernc.org/sqlite", "testing"},
		reason:   "one database needs no other",
	},
	"nats": {
		packages: []string{"pkg/storage/kine/nats"},
		without:  []string{"github.com/jackc", "github.com/go-sql-driver", "github.com/t4db", "modernc.org/sqlite"},
		reason:   "one database needs no other",
	},
	"t4": {
		packages: []string{"pkg/storage/kine/t4"},
		without:  []string{"github.com/jackc", "github.com/go-sql-driver", "github.com/nats-io", "modernc.org/sqlite"},
		reason:   "one database needs no other",
	},
	"all parts": {
		packages: []string{"pkg/preset", "pkg/crd", "pkg/aggregator", "pkg/authn", "pkg/authz", "pkg/builtin/kube", "pkg/encryption"},
		without:  []string{"github.com/k3s-io/kine", "github.com/nats-io", "github.com/jackc", "github.com/go-sql-driver", "github.com/t4db"},
		reason:   "parts choose no storage",
	},
	"everything": {
		packages: []string{"./..."},
		without:  []string{"k8s.io/kubernetes", "github.com/k3s-io/kine/pkg/endpoint"},
		reason:   "the whole library stays clear of what no part needs",
	},
}
