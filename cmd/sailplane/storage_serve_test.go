package main

import "testing"

// TestKineURL: a storage is served by the URL that kine has for it.
func TestKineURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"sqlite:///var/lib/kine/state.db?_journal=WAL&cache=shared": "sqlite:/var/lib/kine/state.db",
		"sqlite://./db/state.db":                                    "sqlite:./db/state.db",
		"sqlite:a.db":                                               "sqlite:a.db",
		"mysql://root:pw@tcp(db:3306)/kine":                         "mysql://root:pw@db:3306/kine",
		"mysql://root:pw@db:3306/kine":                              "mysql://root:pw@db:3306/kine",
		"postgres://root:pw@db/kine?sslmode=a":                      "postgres://root:pw@db/kine?sslmode=a",
		"https://10.0.0.1:2379":                                     "etcd+https://10.0.0.1:2379",
		"memory":                                                    "memory",
		"etcd:dir":                                                  "etcd:dir",
	} {
		if got := kineURL(url); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
}
