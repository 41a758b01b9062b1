// Package dialing connects to the webhooks that users of a plane configure: not in
// denied networks, and only until the plane ends. Other servers, which the operator
// names by a kubeconfig, may be anywhere.
package dialing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
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

// LinkLocal are the addresses of a host's links, and those at which clouds have services
// for their machines, credentials among them. Nothing that users of an API may name is
// there.
func LinkLocal() []netip.Prefix {
	var all []netip.Prefix
	for _, p := range []string{
		"169.254.0.0/16", "fe80::/10", "64:ff9b::a9fe:0/112",
		"fd00:ec2::254/128",  // Amazon
		"fd20:ce::254/128",   // Google
		"100.100.100.200/32", // Alibaba
		"168.63.129.16/32",   // Azure
		"192.0.0.192/32",     // Oracle
	} {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

// Dialer makes the connections to webhooks. Its owner ends them with CloseAll.
type Dialer struct {
	*connrotation.Dialer
	deny, allow []netip.Prefix
	linkLocal   []netip.Prefix // denied, too
	plan        Plan
}

// Plan is what a plane knows of hosts and Services: *controlplane.Plan.
type Plan interface {
	webhook.ServiceResolver
	// HostTransport is the way to a handler in the process, nil if there is none.
	HostTransport(host string) http.RoundTripper
	// ServiceAddress is the one that the operator chose, empty if there is none.
	ServiceAddress(namespace, name string, port int32) string
}

// New returns a dialer that connects to no address of [LinkLocal] and the denied networks,
// but for allowed ones and those that the operator chose for a Service.
func New(deny, allow []netip.Prefix, plan Plan) Dialer {
	d := Dialer{deny: deny, allow: allow, linkLocal: LinkLocal(), plan: plan}
	// What a name resolves to may change: the address is checked when connecting to
	// it, also for the addresses of a resolver.
	dial := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second, ControlContext: d.control}
	d.Dialer = connrotation.NewDialer(dial.DialContext)
	return d
}

// chosen marks the context of a connection to an address that the operator chose.
type chosen struct{}

// Check returns what is wrong with the lists.
func (d Dialer) Check() error {
	var errs []error
	for name, list := range map[string][]netip.Prefix{"deny": d.deny, "allow": d.allow} {
		for i, p := range list {
			if !p.IsValid() || p.Addr().Is4In6() {
				errs = append(errs, fmt.Errorf("%s[%d]: %s matches no address: "+
					"give the prefix of an IPv4 or IPv6 network, such as 10.0.0.0/8", name, i, p))
			}
		}
	}
	return errors.Join(errs...)
}

// control refuses to connect to an address that is denied.
func (d Dialer) control(ctx context.Context, _, address string, _ syscall.RawConn) error {
	if ctx.Value(chosen{}) != nil {
		return nil
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", address, err)
	}
	return d.CheckAddress(to.Addr())
}

// CheckAddress returns an error for an address that is denied to those who write objects.
func (d Dialer) CheckAddress(addr netip.Addr) error {
	// A prefix contains no address with a zone, and one of IPv4 no IPv4 address in
	// IPv6 form.
	addr = addr.Unmap().WithZone("")
	if slices.ContainsFunc(d.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return nil
	}
	for _, list := range [][]netip.Prefix{d.deny, d.linkLocal} {
		for _, p := range list {
			if p.Contains(addr) {
				return fmt.Errorf("connections to %s are not allowed: the server denies %s", addr, p)
			}
		}
	}
	return nil
}

// Configure has a client use the dialer.
func (d Dialer) Configure(c *rest.Config) {
	c.Dial = d.DialContext
	c.Proxy = d.Proxy
	c.Wrap(WithoutRedirects)
}

// Proxy is the one of the environment, unless networks are denied: a proxy connects to any
// address.
func (d Dialer) Proxy(r *http.Request) (*url.URL, error) {
	if len(d.deny) > 0 {
		return nil, nil
	}
	if at, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
		if err := d.CheckAddress(at); err != nil {
			return nil, err
		}
	}
	return http.ProxyFromEnvironment(r)
}

// ConfigureService has the client of a Service use the dialer. The client belongs to that
// Service: no other one, and no URL, gets at denied networks by naming its address.
func (d Dialer) ConfigureService(c *rest.Config, name, namespace string, port int) {
	c.Proxy = direct // a proxy knows no Services
	c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == d.plan.ServiceAddress(namespace, name, int32(port)) { //nolint:gosec // a port
			ctx = Chosen(ctx)
		}
		return d.DialContext(ctx, network, address)
	}
	c.Wrap(WithoutRedirects)
}

// Chosen has connections go anywhere: the operator chose the address.
func Chosen(ctx context.Context) context.Context { return context.WithValue(ctx, chosen{}, true) }

// WithoutRedirects has redirects be errors: a client would follow them to where the
// webhook wants, with what it was sent.
func WithoutRedirects(way http.RoundTripper) http.RoundTripper { return strict{way} }

type strict struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper. A large request whose webhook is called rests
// until the answer is read: it waits for its turn when nobody measures the webhook's time.
func (s strict) RoundTrip(r *http.Request) (*http.Response, error) {
	turn := turns.From(r.Context())
	rested := turn.Rest()
	// The call's deadline is the webhook's. Turns end with the request that has them.
	resume := func() { rested(context.WithoutCancel(r.Context())) }
	response, err := s.RoundTripper.RoundTrip(r)
	if err != nil {
		resume()
		return response, err
	}
	if response.StatusCode >= 300 && response.StatusCode < 400 && response.Header.Get("Location") != "" {
		_ = response.Body.Close()
		resume()
		return nil, fmt.Errorf("%s answers with a redirect (%d), which is not followed: name the URL that it leads to",
			r.URL.Host, response.StatusCode)
	}
	if turn != nil {
		response.Body = &restful{response.Body, resume}
	}
	return response, nil
}

// restful is the body of an answer to a request that rests until it is closed.
type restful struct {
	io.ReadCloser
	resume func()
}

// Close implements io.Closer.
func (b *restful) Close() error {
	err := b.ReadCloser.Close()
	b.resume()
	return err
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (s strict) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }

func direct(*http.Request) (*url.URL, error) { return nil, nil }
