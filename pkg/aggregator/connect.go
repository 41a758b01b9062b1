package aggregator

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync/atomic"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

// connections go to the servers of remote APIServices: anywhere that the operator said,
// and elsewhere not into networks that are denied.
type connections struct {
	dialing.Dialer
	plan     *controlplane.Plan
	identity *identity
	buffers  buffers
	closed   atomic.Bool
}

func newConnections(deny, allow []netip.Prefix, p *controlplane.Plan, i *identity) *connections {
	return &connections{Dialer: dialing.New(deny, allow, p), plan: p, identity: i}
}

// resolve returns where a Service's port is. A Service of the API with a denied address is an
// error.
func (c *connections) resolve(p place) (*url.URL, error) {
	at, err := c.plan.ResolveEndpoint(p.namespace, p.name, p.port)
	if err != nil || c.chosen(p, at.Host) {
		return at, err
	}
	if ip, parsed := netip.ParseAddr(at.Hostname()); parsed == nil {
		if err := c.CheckAddress(ip); err != nil {
			return nil, fmt.Errorf("service %q: %w", p, err)
		}
	}
	return at, nil
}

// chosen tells whether the operator chose the address of a server.
func (c *connections) chosen(p place, address string) bool {
	return p.given != nil || p.url == "" && address == c.plan.ServiceAddress(p.namespace, p.name, p.port)
}

// dial connects to a server. An address that is a name is checked here.
func (c *connections) dial(ctx context.Context, p place, network, address string) (net.Conn, error) {
	if c.chosen(p, address) {
		ctx = dialing.Chosen(ctx)
	}
	conn, err := c.Dialer.DialContext(ctx, network, address)
	if err == nil && c.closed.Load() {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	return conn, err
}

// CloseAll ends the connections, and those that are being made.
func (c *connections) CloseAll() {
	c.closed.Store(true)
	c.Dialer.CloseAll()
}
