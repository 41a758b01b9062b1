package main

import (
	"fmt"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// open reads the value of -storage.
func open(value string) (controlplane.Storage, error) {
	scheme, path, _ := strings.Cut(value, ":")
	switch scheme {
	case "memory":
		return memory.Store{}, nil
	case "sqlite":
		return sqlite.File{Path: path}, nil
	case "etcd":
		return etcd.Embedded{Dir: path}, nil
	}
	return nil, fmt.Errorf("-storage %q: want memory, sqlite:PATH or etcd:DIR", value)
}
