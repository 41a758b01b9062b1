package controlplane

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/sailplane-dev/sailplane/pkg/internal/addresses"
	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

// AddressLimits bound what the clients of one address may take before anybody knows who
// they are. An address is one of IPv4, or a /64 network of IPv6; it is the other end of
// the connection, and no header changes it. The defaults are for many clients behind one
// address: a site, or a proxy that passes TLS on. Metric
// sailplane_addresses_refused_total counts what was refused.
type AddressLimits struct {
	// Connections may be open at once; more are closed before they cost a TLS handshake.
	// This and the limit of handshakes are enforced where the server listens. Empty: 2,000.
	Connections int
	// HandshakesPerSecond are new connections per second, and HandshakeBurst so many at
	// once. Empty: 100 and 2,000.
	HandshakesPerSecond float64
	HandshakeBurst      int
	// FailuresPerSecond are requests per second that fail to authenticate, and
	// FailureBurst so many at once. More get 429 instead of 401, are neither audited nor
	// logged, and their connections end. Requests with good credentials pass. Empty: 20
	// and 1,000.
	FailuresPerSecond float64
	FailureBurst      int
	// Trusted are networks without these limits: of proxies and load balancers that bring
	// the clients of many addresses. Nil: the loopback networks, where sidecars and proxies
	// of the machine are, and whoever calls from there has other ways to take its
	// resources. Empty but not nil: none.
	Trusted []netip.Prefix
}

// withDefaults has a value in every field.
func (l AddressLimits) withDefaults() AddressLimits {
	l.Connections = cmp.Or(l.Connections, 2_000)
	l.HandshakesPerSecond = cmp.Or(l.HandshakesPerSecond, 100)
	l.HandshakeBurst = cmp.Or(l.HandshakeBurst, 2_000)
	l.FailuresPerSecond = cmp.Or(l.FailuresPerSecond, 20)
	l.FailureBurst = cmp.Or(l.FailureBurst, 1_000)
	if l.Trusted == nil {
		l.Trusted = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
	return l
}

// check refuses values without a meaning.
func (l AddressLimits) check() []error {
	var errs []error
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"Connections", float64(l.Connections)},
		{"HandshakesPerSecond", l.HandshakesPerSecond},
		{"HandshakeBurst", float64(l.HandshakeBurst)},
		{"FailuresPerSecond", l.FailuresPerSecond},
		{"FailureBurst", float64(l.FailureBurst)},
	} {
		if !(f.value >= 0) && f.value != Unlimited { // nor is it NaN
			errs = append(errs, fmt.Errorf(
				"limits: Addresses.%s is %v: want a number above 0, 0 for the default, or Unlimited", f.name, f.value))
		}
	}
	for _, p := range l.Trusted {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf(
				"limits: Addresses.Trusted has %v: want networks, such as netip.MustParsePrefix(%q)", p, "10.0.0.0/8"))
		}
	}
	return errs
}

// table is an empty one with these limits.
func (l AddressLimits) table() *addresses.Table {
	return addresses.New(addresses.Limits{
		Connections: l.Connections, HandshakesPerSecond: l.HandshakesPerSecond, HandshakeBurst: l.HandshakeBurst,
		FailuresPerSecond: l.FailuresPerSecond, FailureBurst: l.FailureBurst, Trusted: l.Trusted,
	}, time.Now, func(limit addresses.Limit) { metrics.RefusedAddress(string(limit)) })
}

// client is the address that a request came from. Own clients have none.
func client(r *http.Request) netip.Addr {
	if loopback.From(r.Context()) {
		return netip.Addr{}
	}
	return addresses.Of(r.RemoteAddr)
}

// refuseFailures answers requests that failed to authenticate with 429 when an address
// has too many of them, and ends their connections.
func refuseFailures(failed http.Handler, table *addresses.Table, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after, refused := table.Fail(client(r))
		if !refused {
			failed.ServeHTTP(w, r)
			return
		}
		// With HTTP/2 this is GOAWAY, as in genericfilters.WithProbabilisticGoaway.
		w.Header().Set("Connection", "close")
		responsewriters.ErrorNegotiated(apierrors.NewTooManyRequests(
			"too many requests from this address failed to authenticate: check the credentials", int(after/time.Second),
		), codecs, schema.GroupVersion{Version: "v1"}, w, r)
	})
}

// quietFailures asks an authenticator, and says nothing of why it failed when an address
// has failed too often: upstream logs each reason.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/endpoints/filters/authentication.go#L76
func quietFailures(who authenticator.Request, table *addresses.Table) authenticator.Request {
	return authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		resp, ok, err := who.AuthenticateRequest(r)
		if err != nil && table.Failed(client(r)) {
			return nil, false, nil
		}
		return resp, ok, err
	})
}
