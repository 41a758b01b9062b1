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
