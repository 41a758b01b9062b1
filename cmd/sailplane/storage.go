package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/nats"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/postgres"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/t4"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// passwordVariable has the password of a database: in --storage, the list of
// processes would show it.
const passwordVariable = "SAILPLANE_STORAGE_PASSWORD"

// login holds what verifies an external storage and logs in to it.
type login struct {
	ca, cert, key string // files
	passwordFile  string
	password      string // from the environment; only databases have one
}

// files tells whether a flag names a file of a login.
func (l login) files() bool { return l.ca+l.cert+l.key != "" }

// storageForms are the values of --storage.
func storageForms() []string {
	return []string{
		"memory", "sqlite:PATH", "etcd:DIR", "etcd+http(s)://HOST:PORT,...",
		"postgres://USER@HOST/DATABASE", "mysql://USER@HOST/DATABASE", "nats://USER@HOST?bucket=NAME", "t4://DIR",
	}
}

// database returns the database that a URL describes, or nil if it describes
// none.
func database(url string, l login) controlplane.Storage {
	remote := kine.Remote{
		URL: url, Password: l.password, PasswordFile: l.passwordFile, CAFile: l.ca, CertFile: l.cert, KeyFile: l.key,
	}
	switch scheme, _, _ := strings.Cut(url, "://"); scheme {
	case "postgres", "postgresql":
		return postgres.DB(remote)
	case "mysql":
		return mysql.DB(remote)
	case "nats":
		return nats.JetStream(remote)
	case "t4":
		return t4.Node(remote)
	}
	return nil
}

// withoutLogin returns a value of --storage that can be shown: the part before an @
// may be a password.
func withoutLogin(value string) string {
	at := strings.LastIndex(value, "@")
	if at < 0 {
		return value
	}
	scheme, _, _ := strings.Cut(value[:at], ":")
	return scheme + ":xxxxx" + value[at:]
}

// limits are the limits of an embedded etcd. 0: its defaults.
type limits struct{ quota, history resource.QuantityValue }

// of returns a storage with the limits, which only an embedded etcd has.
func (l limits) of(s controlplane.Storage) (controlplane.Storage, error) {
	if l.quota.Sign() < 0 || l.history.Sign() < 0 {
		return nil, errors.New("--storage-quota, --storage-history-limit: want a size, such as 8Gi")
	}
	if l.quota.IsZero() && l.history.IsZero() {
		return s, nil
	}
	e, ok := s.(etcd.Embedded)
	if !ok {
		return nil, errors.New("--storage-quota, --storage-history-limit: only an embedded etcd has them")
	}
	e.QuotaBytes, e.HistoryBytes = l.quota.Value(), l.history.Value()
	return e, nil
}

// parseStorage reads --storage. Empty is an embedded etcd in the data directory.
func parseStorage(value, dataDir string, l login) (controlplane.Storage, error) {
	wrong := func(why string) error {
		return fmt.Errorf("--storage %q: %s: want %s", withoutLogin(value), why, strings.Join(storageForms(), ", "))
	}
	if d := database(value, l); d != nil {
		return d, nil
	}
	if l.passwordFile != "" {
		return nil, errors.New("--storage-password-file: only a database has one (postgres://, mysql://, nats://, t4://)")
	}
	if strings.HasPrefix(value, "etcd+http://") || strings.HasPrefix(value, "etcd+https://") {
		return parseCluster(value, l, wrong)
	}
	if l.files() {
		return nil, errors.New("--storage-ca, --storage-cert, --storage-key: " +
			"only an external storage has them (etcd+https:// or a database)")
	}
	scheme, rest, found := strings.Cut(value, ":")
	switch {
	case value == "" || value == "etcd:":
		return etcd.Embedded{Dir: filepath.Join(dataDir, "etcd")}, nil
	case value == "memory":
		return memory.Store{}, nil
	case scheme == "sqlite" && found && rest != "":
		return sqlite.File{Path: rest}, nil
	case scheme == "sqlite":
		return nil, wrong("the path is missing")
	case scheme == "etcd" && found:
		return etcd.Embedded{Dir: rest}, nil
	}
	return nil, wrong("unknown storage")
}

// parseCluster reads etcd+http(s)://host:port,host:port.
func parseCluster(value string, l login, wrong func(string) error) (controlplane.Storage, error) {
	scheme, hosts, _ := strings.Cut(strings.TrimPrefix(value, "etcd+"), "://")
	var endpoints []string
	for _, h := range strings.Split(hosts, ",") {
		h = strings.TrimPrefix(strings.TrimPrefix(h, "etcd+"), scheme+"://")
		if h == "" {
			return nil, wrong("a host is empty")
		}
		endpoints = append(endpoints, scheme+"://"+h)
	}
	if scheme == "http" && l.files() {
		return nil, wrong("TLS files do not go with plain http")
	}
	if (l.cert == "") != (l.key == "") {
		return nil, errors.New("--storage-cert and --storage-key: set both or neither")
	}
	return etcd.Cluster{Endpoints: endpoints, CAFile: l.ca, CertFile: l.cert, KeyFile: l.key}, nil
}
