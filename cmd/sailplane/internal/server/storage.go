package server

import (
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/nats"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/t4"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// PasswordVariable has the password of a database: in storage.url, the list of
// processes would show it.
const PasswordVariable = "SAILPLANE_STORAGE_PASSWORD"

// database returns the database that a URL describes, or nil if it describes
// none.
func database(c config.Storage, password string) controlplane.Storage {
	if c.PasswordFile != "" {
		password = ""
	}
	remote := kine.Remote{
		URL: c.URL, Password: password, PasswordFile: c.PasswordFile, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
	}
	switch scheme, _, _ := strings.Cut(c.URL, "://"); scheme {
	case "postgres", "postgresql":
		return postgres.DB{
			URL: c.URL, Password: password, PasswordFile: c.PasswordFile, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		}
	case "mysql":
		return mysql.DB{
			URL: c.URL, Password: password, PasswordFile: c.PasswordFile, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		}
	case "nats":
		return nats.JetStream(remote)
	case "t4":
		return t4.Node(remote)
	}
	return nil
}

// Storage returns the storage that a configuration describes, with a password unless that is in a file.
func Storage(c *config.Server, password string) (controlplane.Storage, error) {
	return storageOf(c.Storage, c.DataDir, password)
}

// storageOf returns the storage that a configuration describes. The password is that
// of the environment; only databases have one.
func storageOf(c config.Storage, dataDir, password string) (controlplane.Storage, error) {
	wrong := func(why string) error {
		return mistake{"storage.url", fmt.Sprintf("%q: %s: want %s",
			config.WithoutLogin(c.URL), why, strings.Join(config.StorageForms(), ", "))}
	}
	s, err := opened(c, dataDir, password, wrong)
	if err != nil {
		return nil, err
	}
	return limited(s, c)
}

func opened(c config.Storage, dataDir, password string, wrong func(string) error) (controlplane.Storage, error) {
	if d := database(c, password); d != nil {
		return d, nil
	}
	if c.PasswordFile != "" {
		return nil, mistake{"storage.passwordFile", "only a database has one (postgres://, mysql://, nats://, t4://)"}
	}
	if strings.HasPrefix(c.URL, "etcd+http://") || strings.HasPrefix(c.URL, "etcd+https://") {
		return cluster(c, wrong)
	}
	for field, file := range map[string]string{"caFile": c.CAFile, "certFile": c.CertFile, "keyFile": c.KeyFile} {
		if file != "" {
			return nil, mistake{"storage." + field, "only an external storage has it (etcd+https:// or a database)"}
		}
	}
	scheme, rest, found := strings.Cut(c.URL, ":")
	switch {
	case (c.URL == "" || c.URL == "etcd:") && dataDir == "":
		return nil, wrong("it is missing, and there is no data directory")
	case c.URL == "" || c.URL == "etcd:":
		return etcd.Embedded{Dir: filepath.Join(dataDir, "etcd")}, nil
	case c.URL == "memory":
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

// cluster reads etcd+http(s)://host:port,host:port.
func cluster(c config.Storage, wrong func(string) error) (controlplane.Storage, error) {
	scheme, hosts, _ := strings.Cut(strings.TrimPrefix(c.URL, "etcd+"), "://")
	var endpoints []string
	for _, h := range strings.Split(hosts, ",") {
		h = strings.TrimPrefix(strings.TrimPrefix(h, "etcd+"), scheme+"://")
		if h == "" {
			return nil, wrong("a host is empty")
		}
		endpoints = append(endpoints, scheme+"://"+h)
	}
	if scheme == "http" && c.CAFile+c.CertFile+c.KeyFile != "" {
		return nil, wrong("TLS files do not go with plain http")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return nil, mistake{"storage.certFile", "set storage.keyFile, too, or neither"}
	}
	return etcd.Cluster{Endpoints: endpoints, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}, nil
}

// checkDatabase looks at what only PostgreSQL and MySQL have.
func checkDatabase(s controlplane.Storage, c config.Storage) error {
	isSQL := false
	switch s.(type) {
	case postgres.DB, mysql.DB:
		isSQL = true
	}
	for field, set := range map[string]int64{
		"storage.connections": int64(c.Connections), "storage.pollInterval": int64(c.PollInterval.Duration),
	} {
		if set < 0 {
			return mistake{field, "it is less than 0"}
		}
		if set != 0 && !isSQL {
			return mistake{field, "only PostgreSQL and MySQL have it (postgres://, mysql://)"}
		}
	}
	return nil
}

// limited gives a storage its limits. Only an embedded etcd has a quota, and what is not ours
// bounds its history itself, or not.
func limited(s controlplane.Storage, c config.Storage) (controlplane.Storage, error) {
	for field, limit := range map[string]resource.Quantity{"storage.quota": c.Quota, "storage.historyLimit": c.HistoryLimit} {
		if limit.Sign() < 0 {
			return nil, mistake{field, "want a size, such as 8Gi"}
		}
	}
	if _, embedded := s.(etcd.Embedded); !embedded && !c.Quota.IsZero() {
		return nil, mistake{"storage.quota", "only an embedded etcd has it"}
	}
	if err := checkDatabase(s, c); err != nil {
		return nil, err
	}
	history := c.HistoryLimit.Value()
	switch s := s.(type) {
	case etcd.Embedded:
		s.QuotaBytes, s.HistoryBytes = c.Quota.Value(), history
		return s, nil
	case memory.Store:
		s.HistoryBytes = history
		return s, nil
	case sqlite.File:
		s.HistoryBytes = history
		return s, nil
	case postgres.DB:
		s.HistoryBytes, s.Connections, s.PollInterval = history, c.Connections, c.PollInterval.Duration
		return s, nil
	case mysql.DB:
		s.HistoryBytes, s.Connections, s.PollInterval = history, c.Connections, c.PollInterval.Duration
		return s, nil
	}
	if history != 0 {
		return nil, mistake{
			"storage.historyLimit", "an etcd cluster, NATS and t4 have none: they keep what is not compacted, whatever its size",
		}
	}
	return s, nil
}
