package aggregator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

// connections go to the servers of remote APIServices: anywhere that the operator said,
// and elsewhere not into networks that are denied.
type connections struct {
	dialing.Dialer
	plan *controlplane.Plan
	// chosen are the addresses that the operator chose, which requests went to.
	chosen sync.Map
	closed atomic.Bool
}

func newConnections(deny, allow []netip.Prefix, p *controlplane.Plan) *connections {
	return &connections{Dialer: dialing.New(deny, allow, p), plan: p}
}

// ResolvesServices tells whether any part finds Services.
func (c *connections) ResolvesServices() bool { return c.plan.ResolvesServices() }

// ResolveEndpoint implements controlplane.ServiceResolver. A Service of the API with a
// denied address is an error, also if the operator chose that address for another one.
func (c *connections) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	at, err := c.plan.ResolveEndpoint(namespace, name, port)
	if err != nil {
		return nil, err
	}
	if at.Host == c.plan.ServiceAddress(namespace, name, port) {
		c.chosen.Store(at.Host, true)
		return at, nil
	}
	if ip, parsed := netip.ParseAddr(at.Hostname()); parsed == nil {
		err = c.CheckAddress(ip)
	} else if c.isChosen(at.Host) { // it would be connected to unchecked
		err = errors.New("its address was chosen for another Service: choose it for this one, too (services.Addresses)")
	}
	if err != nil {
		return nil, fmt.Errorf("service %q: %w", namespace+"/"+name, err)
	}
	return at, nil
}

// DialContext connects to a server. An address that is a name is checked here.
func (c *connections) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if c.isChosen(address) {
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

func (c *connections) isChosen(address string) bool {
	_, ok := c.chosen.Load(address)
	return ok
}
