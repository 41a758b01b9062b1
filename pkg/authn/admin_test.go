package authn

import (
	"net"
	"testing"
)

func TestEndpointOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		addr   net.Addr
		want   string
	}{
		"given":    {"an address is reached as it is", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, "https://10.0.0.1:6443"},
		"all IPv4": {"nobody connects to 0.0.0.0", &net.TCPAddr{IP: net.IPv4zero, Port: 6443}, "https://127.0.0.1:6443"},
		"all":      {"Go binds 0.0.0.0 as [::], which IPv4 reaches too", &net.TCPAddr{IP: net.IPv6unspecified, Port: 6443}, "https://127.0.0.1:6443"},
		"IPv6":     {"an IPv6 address stands in brackets", &net.TCPAddr{IP: net.IPv6loopback, Port: 6443}, "https://[::1]:6443"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := endpointOf(tc.addr)
			if err != nil || got.URL != tc.want {
				t.Errorf("%s: %q, %v; want %q", tc.reason, got.URL, err, tc.want)
			}
		})
	}
}
