package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// FuzzStorage: a value of --storage is a storage or an error, never both, and
// one that is taken says where it is.
func FuzzStorage(f *testing.F) {
	for _, seed := range []string{
		"", "memory", "memory:", "sqlite:", "sqlite", "sqlite:a.db", "etcd:", "etcd:dir", "etcd", "etcd+http://a:1", "etcd+https://a:1,b:2", "etcd+http://",
		"etcd+http://a,,b", "etcd+http://a,etcd+http://b", "etcd+https://a,http://b", "etcd+ftp://a", "nats://a", "postgres://a", ":", "etcd+http://a,https://b",
	} {
		f.Add(seed, "", "", "")
		f.Add(seed, "ca", "cert", "key")
	}
	f.Fuzz(func(t *testing.T, value, ca, cert, key string) {
		const data = "data"
		storage, err := parseStorage(value, data, tlsFiles{ca, cert, key})
		if (storage == nil) == (err == nil) {
			t.Fatalf("%v, %v", storage, err)
		}
		switch s := storage.(type) {
		case etcd.Cluster:
			if len(s.Endpoints) == 0 || slices.Contains(s.Endpoints, "") || (s.CertFile == "") != (s.KeyFile == "") {
				t.Errorf("%+v", s)
			}
			for _, e := range s.Endpoints {
				if scheme, host, _ := strings.Cut(e, "://"); host == "" || !strings.HasPrefix(value, "etcd+"+scheme+"://") {
					t.Errorf("endpoint %q of %q", e, value)
				}
			}
		case sqlite.File:
			if s.Path == "" {
				t.Error("no path")
			}
		case etcd.Embedded:
			if s.Dir == "" {
				t.Error("no folder")
			}
		}
		if storage != nil && ca+cert+key != "" && !strings.HasPrefix(value, "etcd+https://") {
			t.Errorf("%q is taken with files of TLS", value)
		}
	})
}
