package pki

import (
	"errors"
	"net"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		addr   string
		hosts  []string // beyond localhost, 127.0.0.1 and ::1
		url    string
		err    error
	}{
		"loopback":         {reason: "the usual case", addr: "127.0.0.1:6443", url: "https://127.0.0.1:6443"},
		"any v4":           {reason: "nobody can connect to 0.0.0.0", addr: "0.0.0.0:6443", url: "https://127.0.0.1:6443"},
		"any v6":           {reason: "nobody can connect to ::", addr: "[::]:6443", url: "https://[::1]:6443"},
		"any mapped":       {reason: "a mapped address is the IPv4 one", addr: "[::ffff:0.0.0.0]:6443", url: "https://127.0.0.1:6443"},
		"port only":        {reason: "no host is every host", addr: ":6443", url: "https://127.0.0.1:6443"},
		"nothing":          {reason: "no address is every host", addr: "", url: "https://127.0.0.1"},
		"any v4, no port":  {reason: "a port is optional", addr: "0.0.0.0", url: "https://127.0.0.1"},
		"any v6, no port":  {reason: "a port is optional", addr: "[::]", url: "https://[::1]"},
		"bare v6":          {reason: "without a port brackets are optional", addr: "2001:DB8::1", hosts: []string{"2001:db8::1"}, url: "https://[2001:DB8::1]"},
		"zone":             {reason: "a zone is for dialing only", addr: "[fe80::1%eth0]:6443", hosts: []string{"fe80::1"}, url: "https://[fe80::1%25eth0]:6443"},
		"name":             {reason: "a name is a name", addr: "API.example.com:443", hosts: []string{"api.example.com"}, url: "https://API.example.com:443"},
		"name, no port":    {reason: "a port is optional", addr: "my_api", hosts: []string{"my_api"}, url: "https://my_api"},
		"address":          {reason: "an address of this machine", addr: "192.0.2.7:6443", hosts: []string{"192.0.2.7"}, url: "https://192.0.2.7:6443"},
		"port to be found": {reason: "the certificate is needed before the port is known", addr: "127.0.0.1:0", url: "https://127.0.0.1:0"},
		"port name":        {reason: "ports are numbers", addr: "127.0.0.1:https", err: ErrHost},
		"port too high":    {reason: "ports end at 65535", addr: "127.0.0.1:65536", err: ErrHost},
		"url":              {reason: "a URL is not a listen address", addr: "https://127.0.0.1", err: ErrHost},
		"path":             {reason: "a socket's path is not a listen address", addr: "/run/api.sock", err: ErrHost},
		"space":            {reason: "no name has a space", addr: "a b:1", err: ErrHost},
		"odd zone":         {reason: "a zone has to fit into a URL", addr: "[fe80::1%#]:1", err: ErrHost},
		"empty label":      {reason: "no name has an empty label", addr: "a..b:1", err: ErrHost},
		"unicode":          {reason: "certificates are ASCII", addr: "bücher.example:1", err: ErrHost},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseEndpoint(tc.addr)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s: error %v, want %v", tc.reason, err, tc.err)
			}
			want := Endpoint{}
			if tc.err == nil {
				want = Endpoint{Hosts: append([]string{"localhost", "127.0.0.1", "::1"}, tc.hosts...), URL: tc.url}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEndpointOf(t *testing.T) {
	t.Parallel()
	got, err := EndpointOf(&net.TCPAddr{IP: net.IPv6unspecified, Port: 7})
	if err != nil || got.URL != "https://[::1]:7" {
		t.Errorf("got %v, %v", got, err)
	}
}

// FuzzParseEndpoint checks that what is accepted can stand in a certificate and in a URL.
func FuzzParseEndpoint(f *testing.F) {
	for _, addr := range []string{"127.0.0.1:6443", "[::]", ":1", "*.example.com:1", "[fe80::1%a b]:1"} {
		f.Add(addr)
	}
	f.Fuzz(func(t *testing.T, addr string) {
		endpoint, err := ParseEndpoint(addr)
		if err != nil {
			return
		}
		if u, err := url.Parse(endpoint.URL); err != nil || u.Hostname() == "" {
			t.Errorf("url %q: %v", endpoint.URL, err)
		}
		cert := mustCert(t, mustLoad(t, "", Request{Hosts: endpoint.Hosts}).ServerCert)
		for _, host := range endpoint.Hosts {
			if err := cert.VerifyHostname(host); err != nil {
				t.Error(err)
			}
		}
	})
}
