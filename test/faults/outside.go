package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
)

// outside is an etcd in a process of its own, behind a proxy. It listens on
// sockets in its directory, so that no port can be taken when it starts again.
type outside struct {
	program, dir string
	proxy        *proxy

	cmd    *exec.Cmd
	stderr *tail
}

// socket is the name of the socket that clients connect to.
const socket = "client:1"

func startOutside(ctx context.Context, program, dir string) (*outside, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	o := &outside{program: program, dir: dir}
	if err := o.start(); err != nil {
		return nil, err
	}
	var err error
	if o.proxy, err = startProxy(ctx, filepath.Join(dir, socket)); err != nil {
		o.kill()
	}
	return o, err
}

// start starts the process. Who connects waits until it answers.
func (o *outside) start() error {
	o.stderr = &tail{}
	o.cmd = exec.Command(o.program,
		"--data-dir=data", "--listen-client-urls=unix://"+socket, "--advertise-client-urls=unix://"+socket,
		"--listen-peer-urls=unix://peer:1", "--initial-advertise-peer-urls=unix://peer:1", "--initial-cluster=default=unix://peer:1",
	)
	o.cmd.Dir, o.cmd.Stderr = o.dir, o.stderr
	if err := o.cmd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	return nil
}

// kill ends the process so that it cannot react.
func (o *outside) kill() {
	_ = o.cmd.Process.Kill() // it may have ended
	_ = o.cmd.Wait()
}

func (o *outside) stop() {
	o.kill()
	o.proxy.stop()
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
