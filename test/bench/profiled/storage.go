package main

import (
	"fmt"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// etcdFiles are those that an etcd outside is reached with.
type etcdFiles struct{ ca, cert, key string }

// open reads the value of -storage.
func open(value string, files etcdFiles) (controlplane.Storage, error) {
	scheme, path, _ := strings.Cut(value, ":")
	switch scheme {
	case "memory":
		return memory.Store{}, nil
	case "sqlite":
		return sqlite.File{Path: path}, nil
	case "etcd":
		return etcd.Embedded{Dir: path}, nil
	case "etcd+https":
		endpoint := strings.TrimPrefix(value, "etcd+")
		return etcd.Cluster{Endpoints: []string{endpoint}, CAFile: files.ca, CertFile: files.cert, KeyFile: files.key}, nil
	}
	return nil, fmt.Errorf("-storage %q: want memory, sqlite:PATH, etcd:DIR or etcd+https://HOST:PORT", value)
}
