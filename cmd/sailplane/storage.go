package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// tlsFiles are how an external etcd is verified and logged in to.
type tlsFiles struct{ ca, cert, key string }

// storageForms are the values of --storage.
func storageForms() []string {
	return []string{"memory", "sqlite:PATH", "etcd:DIR", "etcd+http(s)://HOST:PORT,..."}
}

// parseStorage reads --storage. Empty is an embedded etcd in the data directory.
func parseStorage(value, dataDir string, tls tlsFiles) (controlplane.Storage, error) {
	wrong := func(why string) error {
		return fmt.Errorf("--storage %q: %s: want %s", value, why, strings.Join(storageForms(), ", "))
	}
	if strings.HasPrefix(value, "etcd+http://") || strings.HasPrefix(value, "etcd+https://") {
		return parseCluster(value, tls, wrong)
	}
	if tls != (tlsFiles{}) {
		return nil, fmt.Errorf("--storage-ca, --storage-cert, --storage-key: they go with an external etcd only (etcd+https://)")
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
func parseCluster(value string, tls tlsFiles, wrong func(string) error) (controlplane.Storage, error) {
	scheme, hosts, _ := strings.Cut(strings.TrimPrefix(value, "etcd+"), "://")
	var endpoints []string
	for _, h := range strings.Split(hosts, ",") {
		h = strings.TrimPrefix(strings.TrimPrefix(h, "etcd+"), scheme+"://")
		if h == "" {
			return nil, wrong("a host is empty")
		}
		endpoints = append(endpoints, scheme+"://"+h)
	}
	if scheme == "http" && tls != (tlsFiles{}) {
		return nil, wrong("TLS files with plain http")
	}
	if (tls.cert == "") != (tls.key == "") {
		return nil, fmt.Errorf("--storage-cert and --storage-key go together")
	}
	return etcd.Cluster{Endpoints: endpoints, CAFile: tls.ca, CertFile: tls.cert, KeyFile: tls.key}, nil
}
