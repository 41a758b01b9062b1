//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sailplane-dev/sailplane/test/database"
)

// sharedNames are targets of several servers on one storage.
func sharedNames() []string {
	return []string{
		sharedPostgres, sharedMariaDB, sharedEtcd,
		kubePrefix + sharedPostgres, kubePrefix + sharedMariaDB, kubePrefix + sharedEtcd,
	}
}

// shared is servers on a storage that they share.
type shared struct {
	lab   *lab
	peers *peers // nil: none is needed
	// kind is that of the storage, and kube says that the servers are kube-apiserver, each with a kine of
	// its own before a database.
	kind string
	kube bool
	// kept is the database for a directory, which starts again with it.
	kept map[string]*database.Server
}

func (l *lab) sharedTarget(name string, built *peers) target {
	kind, kube := strings.CutPrefix(name, kubePrefix)
	return &shared{lab: l, peers: built, kind: kind, kube: kube, kept: map[string]*database.Server{}}
}

func (t *shared) name() string {
	storage := map[string]string{sharedPostgres: "PostgreSQL", sharedMariaDB: "MariaDB", sharedEtcd: "etcd cluster"}[t.kind]
	switch {
	case !t.kube:
		return "Sailplane, " + storage
	case t.kind == sharedEtcd:
		return "kube-apiserver, " + storage
	}
	return "kube-apiserver, kine, " + storage
}

// store is the storage of several servers.
type store struct {
	processes []*process
	url       string // as servers have it; that of kine is another one
}

// stop stops it.
func (s *store) stop() error { return (&server{processes: s.processes}).stop() }

// analyze has a database look at what the tables hold, as it does by itself after a minute: until
// then PostgreSQL reads all of a table for what an index tells.
func (t *shared) analyze(ctx context.Context, s *store) error {
	statement := "ANALYZE"
	switch {
	case t.kind == sharedEtcd:
		return nil
	case t.kind == sharedMariaDB && t.kube:
		statement = "ANALYZE TABLE kine"
	case t.kind == sharedMariaDB:
		statement = "ANALYZE TABLE sailplane_changes"
	}
	db, err := database.Connect(s.url)
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, statement)
	return errors.Join(err, db.Close())
}

// start starts the storage and a server on it, which are one.
func (t *shared) start(ctx context.Context, dir, _ string) (*server, error) {
	st, err := t.open(ctx, dir)
	if err != nil {
		return nil, err
	}
	s, err := t.join(ctx, st, dir)
	if err != nil {
		return nil, errors.Join(err, st.stop())
	}
	s.processes = append(s.processes, st.processes...)
	return s, nil
}

// open starts a storage. Its files are elsewhere than in the directory, which is that of a server.
func (t *shared) open(ctx context.Context, dir string) (*store, error) {
	if t.kind == sharedEtcd {
		return t.openCluster(ctx, dir)
	}
	db, found := t.kept[dir]
	if !found {
		var err error
		if db, err = t.newDatabase(ctx); err != nil {
			return nil, err
		}
		t.kept[dir] = db
	}
	p, err := begin(db.Command())
	if err != nil {
		return nil, err
	}
	st := &store{processes: []*process{p}, url: db.URL("bench")}
	if err := db.Await(ctx); err != nil {
		return nil, errors.Join(err, st.stop())
	}
	return st, nil
}

func (t *shared) newDatabase(ctx context.Context) (*database.Server, error) {
	dir, err := t.lab.fresh()
	if err != nil {
		return nil, err
	}
	flush := t.lab.fsync
	if t.kind == sharedMariaDB {
		return database.NewMariaDB(ctx, dir, map[bool]string{true: "--innodb-flush-log-at-trx-commit=1", false: "--innodb-flush-log-at-trx-commit=2"}[flush])
	}
	return database.NewPostgres(ctx, dir, map[bool]string{true: "fsync=on", false: "fsync=off"}[flush])
}

func (t *shared) moves() bool { return !t.kube && t.kind != sharedEtcd }

func (t *shared) vacant(ctx context.Context, dir string) (*vacancy, error) {
	st, err := t.open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &vacancy{
		url: st.ofSailplane(), server: &sailplane{lab: t.lab, storage: st.ofSailplane()},
		analyze: func(ctx context.Context) error { return t.analyze(ctx, st) }, stop: st.stop,
	}, nil
}

const members = 3 // of a cluster

// openCluster starts an etcd cluster.
func (t *shared) openCluster(ctx context.Context, dir string) (*store, error) {
	var clients, cluster []string
	var ports [members][2]int
	for i := range ports {
		for j := range ports[i] {
			var err error
			if ports[i][j], err = freePort(); err != nil {
				return nil, err
			}
		}
		clients = append(clients, fmt.Sprintf("http://127.0.0.1:%d", ports[i][0]))
		cluster = append(cluster, fmt.Sprintf("member-%d=http://127.0.0.1:%d", i, ports[i][1]))
	}
	st := &store{url: strings.Join(clients, ",")}
	for i := range ports {
		peer := fmt.Sprintf("http://127.0.0.1:%d", ports[i][1])
		p, err := begin(exec.Command(t.peers.program("etcd"),
			fmt.Sprintf("--name=member-%d", i), "--data-dir="+filepath.Join(dir, fmt.Sprintf("etcd-%d", i)),
			"--listen-client-urls="+clients[i], "--advertise-client-urls="+clients[i],
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster="+strings.Join(cluster, ","),
			fmt.Sprintf("--unsafe-no-fsync=%t", !t.lab.fsync),
		))
		if err != nil {
			return nil, errors.Join(err, st.stop())
		}
		st.processes = append(st.processes, p)
	}
	for i := range ports {
		if err := awaitPort(ctx, st.processes[i], ports[i][0]); err != nil {
			return nil, errors.Join(err, st.stop())
		}
	}
	return st, nil
}

// join starts a server on a storage.
func (t *shared) join(ctx context.Context, st *store, dir string) (*server, error) {
	if !t.kube {
		return (&sailplane{lab: t.lab, storage: st.ofSailplane()}).start(ctx, dir, "")
	}
	k := &kube{lab: t.lab, peers: t.peers}
	if t.kind == sharedEtcd {
		return k.serve(ctx, dir, st.url, nil)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	endpoint, err := st.ofKine()
	if err != nil {
		return nil, err
	}
	kine, err := begin(exec.Command(t.peers.program("kine"), append(sharedKineArgs(port), "--endpoint="+endpoint)...))
	if err != nil {
		return nil, err
	}
	if err := awaitPort(ctx, kine, port); err != nil {
		return nil, errors.Join(err, kine.stop())
	}
	return k.serve(ctx, dir, fmt.Sprintf("http://127.0.0.1:%d", port), kine)
}

// ofSailplane is the storage as a flag of Sailplane.
func (s *store) ofSailplane() string {
	if strings.HasPrefix(s.url, "http") {
		return "etcd+" + s.url
	}
	return s.url
}

// ofKine is the storage as kine's endpoint, which for MySQL is a DSN.
func (s *store) ofKine() (string, error) {
	u, err := url.Parse(s.url)
	if err != nil || u.Scheme != "mysql" {
		return s.url, err
	}
	password, _ := u.User.Password()
	return fmt.Sprintf("mysql://%s:%s@tcp(%s)%s", u.User.Username(), password, u.Host, u.Path), nil
}
