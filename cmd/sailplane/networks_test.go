package main

import (
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/admit"
)

func TestNetworks(t *testing.T) {
	t.Parallel()
	private := networks(admit.PrivateNetworks())
	cases := map[string]struct {
		reason string
		values []string
		want   string // empty: an error
	}{
		"one":        {"a network", []string{"10.0.0.0/8"}, "10.0.0.0/8"},
		"several":    {"of both families", []string{"10.0.0.0/8,fd00::/8"}, "10.0.0.0/8,fd00::/8"},
		"repeated":   {"the flag adds", []string{"10.0.0.0/8", "192.0.2.0/24"}, "10.0.0.0/8,192.0.2.0/24"},
		"host bits":  {"the network that an address is in", []string{"10.1.2.3/8"}, "10.0.0.0/8"},
		"private":    {"the word for many", []string{"private"}, private.String()},
		"more":       {"the word and a network", []string{"private,192.0.2.0/24"}, private.String() + ",192.0.2.0/24"},
		"empty":      {"nothing is no network", []string{""}, ""},
		"comma":      {"nor is nothing behind a comma", []string{"10.0.0.0/8,"}, ""},
		"address":    {"an address is none", []string{"10.0.0.1"}, ""},
		"name":       {"a host is none", []string{"localhost"}, ""},
		"IPv4 as 6":  {"it would match nothing", []string{"::ffff:10.0.0.0/104"}, ""},
		"other case": {"the word is one", []string{"Private"}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got networks
			var err error
			for _, v := range c.values {
				if err = got.Set(v); err != nil {
					break
				}
			}
			if (err != nil) != (c.want == "") || err == nil && got.String() != c.want {
				t.Errorf("%s: got %s, %v: want %s", c.reason, got.String(), err, c.want)
			}
			if err != nil && !strings.Contains(err.Error(), "want CIDRs such as 10.0.0.0/8") {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
}
