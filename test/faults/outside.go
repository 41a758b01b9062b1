package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/sailplane-dev/sailplane/test/database"
)

// outside is what servers share, an etcd cluster or a database in processes of their own, behind proxies.
type outside struct {
	sockets []string // where it listens
	proxies []*proxy // to these
	url     func(addresses []string) string
	start   func() error                  // what does not run; who connects waits until it answers
	kill    func(random *rand.Rand) error // some of it, so that it cannot react
	end     func() error                  // all of it, with what it has stored outside of the directory of the round
	said    func() string                 // by all of it
}

func startOutside(ctx context.Context, r Round, dir string) (*outside, error) {
	o, err := newOutside(ctx, r, filepath.Join(dir, "outside"))
	if err != nil {
		return nil, err
	}
	if err := o.begin(ctx); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	return o, nil
}

// begin starts the proxies, and what is behind them.
func (o *outside) begin(ctx context.Context) error {
	for _, socket := range o.sockets {
		p, err := startProxy(ctx, socket)
		if err != nil {
			return err
		}
		o.proxies = append(o.proxies, p)
	}
	return o.start()
}

// address is where servers reach it.
func (o *outside) address() string {
	var all []string
	for _, p := range o.proxies {
		all = append(all, p.address())
	}
	return o.url(all)
}

// newOutside makes it, and starts nothing.
func newOutside(ctx context.Context, r Round, dir string) (*outside, error) {
	if r.Engine == External {
		return etcdOutside(r.Programs.Etcd, dir)
	}
	create := database.NewPostgres
	if r.Engine == MariaDB {
		create = database.NewMariaDB
	}
	own, err := os.MkdirTemp("", "sailplane-faults-database-") // the user of a database sees nothing of the round
	if err != nil {
		return nil, err
	}
	s, err := create(ctx, own)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	return &outside{
		sockets: []string{s.Socket},
		url:     func(addresses []string) string { return s.Through(addresses[0], "faults") },
		start:   s.Start,
		kill:    func(*rand.Rand) error { return s.Kill() },
		end:     func() error { return errors.Join(s.Kill(), os.RemoveAll(own)) },
		said:    s.Output,
	}, nil
}

const members = 3 // of an etcd cluster

// etcdOutside is an etcd cluster whose members listen on sockets in its directory, so that no port can be taken
// when they start again.
func etcdOutside(program, dir string) (*outside, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var cluster []string
	for i := range members {
		cluster = append(cluster, fmt.Sprintf("m%d=unix://peer:%d", i, i))
	}
	running, said := [members]*exec.Cmd{}, [members]tail{}
	begin := func(i int) error {
		client, peer := fmt.Sprintf("unix://client:%d", i), fmt.Sprintf("unix://peer:%d", i)
		cmd := exec.Command(program,
			fmt.Sprintf("--name=m%d", i), fmt.Sprintf("--data-dir=data-%d", i), "--listen-client-urls="+client, "--advertise-client-urls="+client,
			"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster="+strings.Join(cluster, ","),
			"--heartbeat-interval=20", "--election-timeout=200", // in ms
		)
		cmd.Dir, cmd.Stderr = dir, &said[i]
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start etcd: %w", err)
		}
		running[i] = cmd
		return nil
	}
	kill := func(i int) {
		if cmd := running[i]; cmd != nil {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()
			running[i] = nil
		}
	}
	o := &outside{
		url: func(addresses []string) string { return "etcd+http://" + strings.Join(addresses, ",") },
		start: func() (err error) {
			for i := range members {
				if running[i] == nil {
					err = errors.Join(err, begin(i))
				}
			}
			return err
		},
		kill: func(random *rand.Rand) error { // all but one is too many to go on
			for _, i := range random.Perm(members)[:1+random.IntN(members)] {
				kill(i)
			}
			return nil
		},
		end: func() error {
			for i := range members {
				kill(i)
			}
			return nil
		},
		said: func() (all string) {
			for i := range members {
				all += said[i].String()
			}
			return all
		},
	}
	for i := range members {
		o.sockets = append(o.sockets, filepath.Join(dir, fmt.Sprintf("client:%d", i)))
	}
	return o, nil
}

func (o *outside) stop() error {
	for _, p := range o.proxies {
		p.stop()
	}
	return o.end()
}

// proxyFaults is how often the proxy does something to its connections.
const proxyFaults = 6

// disturb has the proxy delay, hold back and cut.
func (r *run) disturb(ctx context.Context) error {
	all := r.outside.proxies
	defer func() {
		for _, p := range all {
			p.heal()
		}
	}()
	return r.each(ctx, proxyFaults, func(context.Context) error {
		for _, i := range r.random.Perm(len(all))[:1+r.random.IntN(len(all))] {
			all[i].disturb(r.random)
		}
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
