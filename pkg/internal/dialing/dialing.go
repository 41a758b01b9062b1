// Package dialing connects to the webhooks that users of a plane configure: not in
// denied networks, and only until the plane ends.
package dialing

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"
)

// PrivateNetworks are the addresses that are not of the public internet: those
// of the host itself, of its links, and of private networks, in IPv4 and IPv6
// (https://www.iana.org/assignments/iana-ipv4-special-registry,
// https://www.iana.org/assignments/iana-ipv6-special-registry), and those of
// IPv6 that a NAT64 gateway translates to any of IPv4.
func PrivateNetworks() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{
		"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
		"192.168.0.0/16", "198.18.0.0/15", "::/128", "::1/128", "64:ff9b::/96", "64:ff9b:1::/48", "fc00::/7", "fe80::/10",
	} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// Dialer makes the connections to webhooks. Its owner ends them with CloseAll.
type Dialer struct {
	*connrotation.Dialer
	deny []netip.Prefix
}

// New returns a dialer that connects to no address of the denied networks.
func New(deny []netip.Prefix) Dialer {
	d := Dialer{deny: deny}
	// What a name resolves to may change: the address is checked when connecting to
	// it, also after redirects and for the addresses of a resolver.
	dial := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, Control: d.control}
	d.Dialer = connrotation.NewDialer(dial.DialContext)
	return d
}

// Check returns what is wrong with the list.
func (d Dialer) Check() error {
	var errs []error
	for i, p := range d.deny {
		if !p.IsValid() || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("deny[%d]: %s matches no address: "+
				"give the prefix of an IPv4 or IPv6 network, such as 10.0.0.0/8", i, p))
		}
	}
	return errors.Join(errs...)
}

// control refuses to connect to an address that is denied.
func (d Dialer) control(_, address string, _ syscall.RawConn) error {
	if len(d.deny) == 0 {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connect to a webhook: %w", err)
	}
	// A prefix contains no address with a zone, and one of IPv4 no IPv4 address in
	// IPv6 form.
	addr := to.Addr().Unmap().WithZone("")
	for _, p := range d.deny {
		if p.Contains(addr) {
			return fmt.Errorf("webhooks at %s are not allowed: the server denies %s", addr, p)
		}
	}
	return nil
}

// Configure has a client use the dialer. It takes what an
// AuthenticationInfoResolver returns, and passes its error on.
func (d Dialer) Configure(c *rest.Config, err error) (*rest.Config, error) {
	if err != nil {
		return nil, err
	}
	c.Dial = d.DialContext
	if len(d.deny) > 0 {
		// A proxy connects to any address.
		c.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	}
	return c, nil
}
