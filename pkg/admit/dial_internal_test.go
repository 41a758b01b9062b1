package admit

import (
	"net/netip"
	"testing"
)

func TestPrefixesThatMatchNothing(t *testing.T) {
	t.Parallel()
	deny := []netip.Prefix{netip.MustParsePrefix("::ffff:10.0.0.0/104")}
	for name, err := range map[string]error{
		"validating": ValidatingWebhooks{Deny: deny}.Install(nil),
		"mutating":   MutatingWebhooks{Deny: deny}.Install(nil),
	} {
		if err == nil {
			t.Errorf("%s: %s is taken, and denies nothing", name, deny)
		}
	}
}
