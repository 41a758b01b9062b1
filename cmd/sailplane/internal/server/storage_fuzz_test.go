package server

import (
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/nats"
	"github.com/sailplane-dev/sailplane/pkg/storage/kine/t4"
	"github.com/sailplane-dev/sailplane/pkg/storage/mysql"
	"github.com/sailplane-dev/sailplane/pkg/storage/postgres"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// FuzzStorage: a value of --storage is a storage or an error, never both, and
// one that is taken says where it is.
func FuzzStorage(f *testing.F) {
	for _, seed := range []string{
		"", "memory", "memory:", "sqlite:", "sqlite", "sqlite:a.db", "etcd:", "etcd:dir", "etcd", "etcd+http://a:1", "etcd+https://a:1,b:2", "etcd+http://",
		"etcd+http://a,,b", "etcd+http://a,etcd+http://b", "etcd+https://a,http://b", "etcd+ftp://a", "nats://a", "t4:///a", "postgres://a", "mysql://u:p@a/b", "postgresql://u@a/b", "postgre://u:p@a/b", ":", "etcd+http://a,https://b",
	} {
		f.Add(seed, "", "", "", "")
		f.Add(seed, "ca", "cert", "key", "")
		f.Add(seed, "", "", "", "password")
	}
	f.Fuzz(func(t *testing.T, value, ca, cert, key, passwordFile string) {
		const data = "data"
		storage, err := storageOf(config.Storage{URL: value, CAFile: ca, CertFile: cert, KeyFile: key, PasswordFile: passwordFile}, data, "")
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
		case postgres.DB:
			isSame(t, s.URL, value, s.PasswordFile, passwordFile)
		case mysql.DB:
			isSame(t, s.URL, value, s.PasswordFile, passwordFile)
		case nats.JetStream:
			isSame(t, s.URL, value, s.PasswordFile, passwordFile)
		case t4.Node:
			isSame(t, s.URL, value, s.PasswordFile, passwordFile)
		case sqlite.File:
			if s.Path == "" {
				t.Error("no path")
			}
		case etcd.Embedded:
			if s.Dir == "" {
				t.Error("no folder")
			}
		}
		scheme, _, _ := strings.Cut(value, "://")
		isDatabase := slices.Contains([]string{"postgres", "postgresql", "mysql", "nats", "t4"}, scheme)
		if storage != nil && ca+cert+key != "" && scheme != "etcd+https" && !isDatabase {
			t.Errorf("%q is taken with files of TLS", value)
		}
		if storage != nil && passwordFile != "" && !isDatabase {
			t.Errorf("%q is taken with the file of a password", value)
		}
	})
}

func isSame(t *testing.T, url, value, passwordFile, flag string) {
	t.Helper()
	if url != value || passwordFile != flag {
		t.Errorf("URL and password file are not those of the flags")
	}
}

// TestErrorsHideLogins: what is wrong with --storage is said without the password.
func TestErrorsHideLogins(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"postgre://u:s3cret@a/b", "etcd+http://u:s3cret@a,,b", "sqlite:", "x:u:s3cret@a"} {
		if _, err := storageOf(config.Storage{URL: value}, "data", ""); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", value, err)
		}
	}
}
