package dialing

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"k8s.io/client-go/rest"
)

func TestDeniedAddresses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, address string
		deny            []netip.Prefix
		denied          bool
	}{
		"no list":        {reason: "without a list, webhooks are anywhere", address: "127.0.0.1:443"},
		"loopback":       {"the host is private", "127.0.0.1:443", PrivateNetworks(), true},
		"any":            {"to connect to no address is to connect to the host", "0.0.0.0:443", PrivateNetworks(), true},
		"metadata":       {"the metadata service of clouds is link-local", "169.254.169.254:80", PrivateNetworks(), true},
		"private":        {"a private network", "10.1.2.3:443", PrivateNetworks(), true},
		"mapped":         {"IPv4 in IPv6 is IPv4", "[::ffff:10.1.2.3]:443", PrivateNetworks(), true},
		"translated":     {"a gateway makes it 10.1.2.3", "[64:ff9b::10.1.2.3]:443", PrivateNetworks(), true},
		"loopback of 6":  {"the host has an address in IPv6", "[::1]:443", PrivateNetworks(), true},
		"zone":           {"the zone says which link it is local to", "[fe80::1%eth0]:443", PrivateNetworks(), true},
		"unique local":   {"private networks of IPv6", "[fd00::1]:443", PrivateNetworks(), true},
		"public":         {"the internet is not private", "192.0.2.1:443", PrivateNetworks(), false},
		"public 6":       {"nor is that of IPv6", "[2001:db8::1]:443", PrivateNetworks(), false},
		"other list":     {"a list of one's own decides", "10.1.2.3:443", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, false},
		"in other list":  {"a list of one's own decides", "192.0.2.1:443", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, true},
		"not an address": {"what cannot be checked is denied", "example.com:443", PrivateNetworks(), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := New(c.deny, nil).control(t.Context(), "tcp", c.address, nil); (err != nil) != c.denied {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

func TestPrefixesThatMatchNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")} {
		if New([]netip.Prefix{p}, nil).Check() == nil {
			t.Errorf("%s is taken, and denies nothing", p)
		}
	}
	if err := New(PrivateNetworks(), nil).Check(); err != nil {
		t.Error(err)
	}
}

// TestNoProxyWithAList: a proxy would connect to what is denied.
func TestNoProxyWithAList(t *testing.T) {
	t.Parallel()
	for reason, deny := range map[string][]netip.Prefix{"direct": PrivateNetworks(), "as the environment says": nil} {
		c := &rest.Config{}
		New(deny, nil).Configure(c)
		if c.Dial == nil || (c.Proxy != nil) != (deny != nil) {
			t.Fatalf("%s: got %v", reason, c)
		}
		if c.Proxy == nil {
			continue
		}
		if u, err := c.Proxy(httptest.NewRequest(http.MethodPost, "https://example.com", nil)); u != nil || err != nil {
			t.Errorf("%s: got %v, %v", reason, u, err)
		}
	}
}
