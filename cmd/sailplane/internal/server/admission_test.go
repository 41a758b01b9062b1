package server

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/admit"
)

func TestDenied(t *testing.T) {
	t.Parallel()
	private := admit.PrivateNetworks()
	ten, test := netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.0/24")
	cases := map[string]struct {
		reason string
		values []string
		want   []netip.Prefix // nil: an error
	}{
		"one":        {"a network", []string{"10.0.0.0/8"}, []netip.Prefix{ten}},
		"several":    {"of both families", []string{"10.0.0.0/8", "fd00::/8"}, []netip.Prefix{ten, netip.MustParsePrefix("fd00::/8")}},
		"host bits":  {"the network that an address is in", []string{"10.1.2.3/8"}, []netip.Prefix{ten}},
		"private":    {"the word for many", []string{"private"}, private},
		"more":       {"the word and a network", []string{"private", "192.0.2.0/24"}, append(slices.Clone(private), test)},
		"empty":      {"nothing is no network", []string{""}, nil},
		"second":     {"each counts", []string{"10.0.0.0/8", "here"}, nil},
		"address":    {"an address is none", []string{"10.0.0.1"}, nil},
		"name":       {"a host is none", []string{"localhost"}, nil},
		"IPv4 as 6":  {"it would match nothing", []string{"::ffff:10.0.0.0/104"}, nil},
		"other case": {"the word is one", []string{"Private"}, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBuild(NewLive(&config.Server{}, false), func(field string) string { return field })
			b.Admission.Webhooks.Deny = c.values
			got := b.denied()
			if err := errors.Join(b.errs...); (err != nil) != (c.want == nil) ||
				err != nil && !strings.Contains(err.Error(), "admission.webhooks.deny: \"") {
				t.Errorf("%s: %v", c.reason, err)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: got %v, want %v", c.reason, got, c.want)
			}
		})
	}
}

// TestReach: a server that only its machine reaches may reach the machine; others may
// not, but where the operator says so.
func TestReach(t *testing.T) {
	t.Parallel()
	loopback, here := netip.MustParseAddr("127.0.0.1"), netip.MustParsePrefix("127.0.0.1/32")
	for listen, denied := range map[string]bool{
		"127.0.0.1:6443": false, "[::1]:6443": false, "localhost:0": false, "127.0.0.2:0": false,
		":6443": true, "0.0.0.0:6443": true, "[::]:6443": true, "192.0.2.1:6443": true, "server.example.com:6443": true,
	} {
		b := newBuild(NewLive(&config.Server{}, false), func(field string) string { return field })
		b.Listen, b.Admission.Webhooks.Allow = listen, []string{here.String()}
		deny, allow := b.reach()
		got := slices.ContainsFunc(deny, func(p netip.Prefix) bool { return p.Contains(loopback) })
		if got != denied || !slices.Equal(allow, []netip.Prefix{here}) {
			t.Errorf("%s: the machine itself is denied: %v, want %v; allowed is %v", listen, got, denied, allow)
		}
	}
}
