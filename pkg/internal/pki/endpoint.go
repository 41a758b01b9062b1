package pki

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Endpoint is how clients reach a server that listens somewhere.
type Endpoint struct {
	// Hosts are the hosts that the serving certificate must have, for [Request].
	Hosts []string
	// URL is the server's address in a kubeconfig, such as https://127.0.0.1:6443.
	URL string
}

// EndpointOf returns the endpoint of a bound listener's address.
func EndpointOf(addr net.Addr) (Endpoint, error) { return ParseEndpoint(addr.String()) }

// ParseEndpoint returns the endpoint of a listen address: a host, a host and a
// port, or a port alone (":6443"). Nobody can connect to an unspecified address,
// so 0.0.0.0 and no host at all are reached on 127.0.0.1, and [::] on [::1].
// Without a port the URL has none; port 0 stays in it, so take the URL from
// [EndpointOf] where the system picks the port. Errors are of kind [ErrHost].
func ParseEndpoint(addr string) (Endpoint, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		host, port = addr, ""
	} else if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return Endpoint{}, fmt.Errorf("listen address %q: port %q is not a number up to 65535: %w", addr, port, ErrHost)
	}
	if host == "" {
		host = netip.IPv4Unspecified().String()
	}
	name, err := normalizeHost(host)
	if err != nil {
		return Endpoint{}, fmt.Errorf("listen address %q: %w", addr, err)
	}
	dial := strings.Trim(host, "[]") // keeps an IPv6 zone, which the certificate cannot
	if ip, err := netip.ParseAddr(name); err == nil && ip.IsUnspecified() {
		name = "127.0.0.1"
		if ip.Is6() {
			name = netip.IPv6Loopback().String()
		}
		dial = name
	}
	server := url.URL{Scheme: "https", Host: net.JoinHostPort(dial, port)}
	if port == "" {
		server.Host = strings.TrimSuffix(server.Host, ":")
	}
	hosts, err := servingHosts([]string{name})
	return Endpoint{Hosts: hosts, URL: server.String()}, err
}

// URLOf returns the URL of a server that clients reach at an address: a host and a
// port, or a host alone, with the port of the listener then. Errors are of kind
// [ErrHost].
func URLOf(address string, listener net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, ""
		if tcp, ok := listener.(*net.TCPAddr); ok {
			port = strconv.Itoa(tcp.Port)
		}
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("address %q: port %q is not a number from 1 to 65535: %w", address, port, ErrHost)
	}
	name, err := normalizeHost(host)
	if err != nil {
		return "", fmt.Errorf("address %q: %w", address, err)
	}
	return (&url.URL{Scheme: "https", Host: net.JoinHostPort(name, port)}).String(), nil
}

// servingHosts returns the hosts that every serving certificate is good for and
// the given ones, in the form they have in a certificate, each once.
func servingHosts(extra []string) ([]string, error) {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	for _, host := range extra {
		name, err := normalizeHost(host)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(hosts, name) {
			hosts = append(hosts, name)
		}
	}
	return hosts, nil
}

// normalizeHost returns a host as a certificate has it: an IP address in its
// shortest form without brackets and zone, or a name in lower case. It accepts what
// resolvers accept, such as underscores, and a leading wildcard.
func normalizeHost(host string) (string, error) {
	bare := host
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		bare = host[1 : len(host)-1]
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		if strings.ContainsFunc(strings.ToLower(ip.Zone()), notInLabel) {
			return "", fmt.Errorf("host %q: zone %q is not allowed in a URL: %w", host, ip.Zone(), ErrHost)
		}
		return ip.WithZone("").Unmap().String(), nil
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	for _, label := range strings.Split(strings.TrimPrefix(name, "*."), ".") {
		if label == "" || strings.ContainsFunc(label, notInLabel) {
			return "", fmt.Errorf("host %q: %w (write a name that is not ASCII in its xn-- form)", host, ErrHost)
		}
	}
	return name, nil
}

// notInLabel reports whether a character cannot be in a lower-case DNS label.
func notInLabel(c rune) bool {
	return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_'
}
