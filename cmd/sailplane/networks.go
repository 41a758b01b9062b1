package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/admit"
)

// networks is the value of --webhook-deny.
type networks []netip.Prefix

// privateNetworks is the value that stands for admit.PrivateNetworks.
const privateNetworks = "private"

func (n *networks) Type() string { return "CIDR,..." }

func (n *networks) String() string {
	words := make([]string, 0, len(*n))
	for _, p := range *n {
		words = append(words, p.String())
	}
	return strings.Join(words, ",")
}

// Set adds networks: the flag may be given more than once.
func (n *networks) Set(value string) error {
	for word := range strings.SplitSeq(value, ",") {
		if word == privateNetworks {
			*n = append(*n, admit.PrivateNetworks()...)
			continue
		}
		p, err := netip.ParsePrefix(word)
		if err != nil || p.Addr().Is4In6() {
			return fmt.Errorf("%q is not a network: want CIDRs such as 10.0.0.0/8 or fd00::/8, or %s, separated by commas",
				word, privateNetworks)
		}
		*n = append(*n, p.Masked())
	}
	return nil
}
