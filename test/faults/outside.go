package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/test/database"
)

// outside is what servers share, an etcd or a database in a process of its own, behind a proxy.
type outside struct {
	proxy *proxy
	url   func(address string) string // how servers reach it
	start func() error                // who connects waits until it answers
	kill  func() error                // so that it cannot react
	// remove removes what it has stored outside of the directory of the round.
	remove func() error
}

func startOutside(ctx context.Context, r Round, dir string) (*outside, error) {
	o, socket, err := newOutside(ctx, r, filepath.Join(dir, "outside"))
	if err != nil {
		return nil, err
	}
	if err := o.start(); err != nil {
		return nil, err
	}
	if o.proxy, err = startProxy(ctx, socket); err != nil {
		err = errors.Join(err, o.kill())
	}
	return o, err
}

// newOutside returns it, and the Unix socket where it listens.
func newOutside(ctx context.Context, r Round, dir string) (*outside, string, error) {
	if r.Engine == External {
		return etcdOutside(r.Programs.Etcd, dir)
	}
	create := database.NewPostgres
	if r.Engine == MariaDB {
		create = database.NewMariaDB
	}
	own, err := os.MkdirTemp("", "sailplane-faults-database-") // the user of a database sees nothing of the round
	if err != nil {
		return nil, "", err
	}
	s, err := create(ctx, own)
	if err != nil {
		return nil, "", errors.Join(err, os.RemoveAll(own))
	}
	return &outside{
		url:   func(address string) string { return s.Through(address, "faults") },
		start: s.Start, kill: s.Kill, remove: func() error { return os.RemoveAll(own) },
	}, s.Socket, nil
}

// etcdClients is the name of the socket that clients of the etcd connect to.
const etcdClients = "client:1"

// etcdOutside is an etcd that listens on sockets in its directory, so that no port can be taken when it
// starts again.
func etcdOutside(program, dir string) (*outside, string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, "", err
	}
	var cmd *exec.Cmd
	return &outside{
		url: func(address string) string { return "etcd+http://" + address },
		start: func() error {
			cmd = exec.Command(program,
				"--data-dir=data", "--listen-client-urls=unix://"+etcdClients, "--advertise-client-urls=unix://"+etcdClients,
				"--listen-peer-urls=unix://peer:1", "--initial-advertise-peer-urls=unix://peer:1", "--initial-cluster=default=unix://peer:1",
			)
			cmd.Dir, cmd.Stderr = dir, &tail{}
			if err := cmd.Start(); err != nil {
				return fmt.Errorf("start etcd: %w", err)
			}
			return nil
		},
		kill: func() error {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
			return nil
		},
		remove: func() error { return nil },
	}, filepath.Join(dir, etcdClients), nil
}

func (o *outside) stop() error {
	o.proxy.stop()
	return errors.Join(o.kill(), o.remove())
}

// proxyFaults is how often the proxy does something to its connections.
const proxyFaults = 6

// disturb has the proxy delay, hold back and cut.
func (r *run) disturb(ctx context.Context) error {
	p := r.outside.proxy
	defer p.heal()
	return r.each(ctx, proxyFaults, func(context.Context) error {
		p.disturb(r.random)
		return nil
	})
}

// disturb cuts all connections, and decides how the next ones are.
func (p *proxy) disturb(random *rand.Rand) {
	switch random.IntN(3) {
	case 0:
		p.cut() // requests and answers on their way are lost
	case 1:
		p.cutAfterRequests() // requests arrive, answers are lost
	}
	p.delay.Store(int64(random.IntN(3)) * int64(slowest) / 2)
}
