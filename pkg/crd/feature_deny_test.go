package crd_test

import (
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestDeniedConversionWebhook: it is not connected to, and the objects that it
// is not needed for can be used.
func TestDeniedConversionWebhook(t *testing.T) {
	t.Parallel()
	hook := newConverter(t)
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	p := startWith(t, crd.Definitions{Deny: loopback})
	p.define(t, definition(t, "bikes", "Bike", strings.Replace(bikes, "CLIENT", hook.client(), 1)))
	v1, v2 := p.of("bikes", "v1"), p.of("bikes", "v2")
	create(t, v1, bike("v1", "a", "{gears: 3}"))
	const want = "connections to 127.0.0.1 are not allowed: the server denies 127.0.0.0/8"
	if _, err := v2.Get(t.Context(), "a", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("get: %v, want %q", err, want)
	}
	if _, err := v2.Create(t.Context(), object(t, bike("v2", "b", "{speeds: 1}")), metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("create: %v, want %q", err, want)
	}
	if n := hook.calls.Load(); n != 0 {
		t.Errorf("the webhook was called %d times", n)
	}
	if err := wantField(get(t, v1, "a"), "spec.gears", int64(3)); err != nil {
		t.Error(err)
	}
}

// TestDenyOfOtherNetworks: webhooks elsewhere convert as ever.
func TestDenyOfOtherNetworks(t *testing.T) {
	t.Parallel()
	hook := newConverter(t)
	p := startWith(t, crd.Definitions{Deny: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}})
	p.define(t, definition(t, "bikes", "Bike", strings.Replace(bikes, "CLIENT", hook.client(), 1)))
	create(t, p.of("bikes", "v1"), bike("v1", "a", "{gears: 3}"))
	if err := wantField(get(t, p.of("bikes", "v2"), "a"), "spec.speeds", int64(3)); err != nil {
		t.Error(err)
	}
}

func TestDenyThatMatchesNothing(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(crd.Definitions{Deny: []netip.Prefix{{}}}).Build()
	if want := `part "crds": deny[0]: invalid Prefix matches no address`; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
