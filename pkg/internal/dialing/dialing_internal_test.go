package dialing

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

func TestDeniedAddresses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, address string
		deny            []netip.Prefix
		denied          bool
		allow           []netip.Prefix
	}{
		"no list":        {reason: "without a list, only link-local addresses are denied", address: "127.0.0.1:443"},
		"always":         {reason: "nobody's webhook is a metadata service", address: "169.254.169.254:80", denied: true},
		"always 6":       {reason: "nor in IPv6", address: "[fd00:ec2::254]:80", denied: true},
		"always on link": {reason: "nor on a link", address: "[fe80::1%eth0]:80", denied: true},
		"translated too": {reason: "a gateway makes it 169.254.169.254", address: "[64:ff9b::169.254.169.254]:80", denied: true},
		"allowed": {
			reason: "the operator knows better", address: "169.254.0.1:80", allow: []netip.Prefix{netip.MustParsePrefix("169.254.0.1/32")},
		},
		"loopback":       {"the host is private", "127.0.0.1:443", PrivateNetworks(), true, nil},
		"any":            {"to connect to no address is to connect to the host", "0.0.0.0:443", PrivateNetworks(), true, nil},
		"metadata":       {"the metadata service of clouds is link-local", "169.254.169.254:80", PrivateNetworks(), true, nil},
		"private":        {"a private network", "10.1.2.3:443", PrivateNetworks(), true, nil},
		"mapped":         {"IPv4 in IPv6 is IPv4", "[::ffff:10.1.2.3]:443", PrivateNetworks(), true, nil},
		"translated":     {"a gateway makes it 10.1.2.3", "[64:ff9b::10.1.2.3]:443", PrivateNetworks(), true, nil},
		"loopback of 6":  {"the host has an address in IPv6", "[::1]:443", PrivateNetworks(), true, nil},
		"zone":           {"the zone says which link it is local to", "[fe80::1%eth0]:443", PrivateNetworks(), true, nil},
		"unique local":   {"private networks of IPv6", "[fd00::1]:443", PrivateNetworks(), true, nil},
		"public":         {"the internet is not private", "192.0.2.1:443", PrivateNetworks(), false, nil},
		"public 6":       {"nor is that of IPv6", "[2001:db8::1]:443", PrivateNetworks(), false, nil},
		"other list":     {"a list of one's own decides", "10.1.2.3:443", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, false, nil},
		"in other list":  {"a list of one's own decides", "192.0.2.1:443", []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, true, nil},
		"not an address": {"what cannot be checked is denied", "example.com:443", PrivateNetworks(), true, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := New(c.deny, c.allow, nil).control(t.Context(), "tcp", c.address, nil); (err != nil) != c.denied {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}

func TestPrefixesThatMatchNothing(t *testing.T) {
	t.Parallel()
	for _, p := range []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")} {
		if New([]netip.Prefix{p}, nil, nil).Check() == nil {
			t.Errorf("%s is taken, and denies nothing", p)
		}
	}
	if err := New(PrivateNetworks(), nil, nil).Check(); err != nil {
		t.Error(err)
	}
}

// TestProxies: a proxy would connect to what is denied.
func TestProxies(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
	for name, c := range map[string]struct {
		reason, url string
		deny        []netip.Prefix
		proxied     bool
		failed      bool
	}{
		"list":       {"it is denied to the server, not to the proxy", "https://example.com", PrivateNetworks(), false, false},
		"no list":    {"the environment says so", "https://example.com", nil, true, false},
		"link-local": {"the proxy may have the same link", "https://169.254.169.254", nil, false, true},
	} {
		config := &rest.Config{}
		New(c.deny, nil, nil).Configure(config)
		u, err := config.Proxy(httptest.NewRequest(http.MethodPost, c.url, nil))
		if (u != nil) != c.proxied || (err != nil) != c.failed {
			t.Errorf("%s: %s: got %v, %v", name, c.reason, u, err)
		}
	}
}

// TestRedirects: a client of a webhook says so, and follows none.
func TestRedirects(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/inside" {
			followed.Store(true)
			return
		}
		code, err := strconv.Atoi(r.URL.Path[1:])
		if err != nil {
			t.Error(err)
			return
		}
		http.Redirect(w, r, "/inside", code)
	}))
	t.Cleanup(s.Close)
	config := &rest.Config{Host: s.URL}
	New(nil, nil, nil).Configure(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []string{"/301", "/302", "/303", "/307", "/308"} {
		response, err := client.Post(s.URL+code, "application/json", strings.NewReader("{}"))
		if err == nil {
			response.Body.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "which is not followed") {
			t.Errorf("%s: %v", code, err)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

// TestTurnsAreNoWebhooksTime: a large request that waits for its turn behind others reads
// the answer of a webhook that came in time, and goes on in its turn.
func TestTurnsAreNoWebhooksTime(t *testing.T) {
	t.Parallel()
	const answer = `{"allowed":true}`
	config := &rest.Config{Host: "http://webhook", Transport: answering(answer)}
	config.ContentConfig = rest.ContentConfig{NegotiatedSerializer: scheme.Codecs, GroupVersion: &corev1.SchemeGroupVersion}
	New(nil, nil, nil).Configure(config)
	config.Dial, config.Proxy = nil, nil // there is a transport
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(1)
		turn, other := line.Of("one"), line.Of("two")
		ctx := turn.With(t.Context())
		turn.Take(ctx)
		defer turn.End()
		go func() { // the line is longer than the webhook's time
			other.Take(t.Context())
			time.Sleep(900 * time.Millisecond)
			other.End()
		}()
		began := time.Now()
		call, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		body, err := client.Post().Body([]byte("{}")).Do(call).Raw()
		if err != nil || string(body) != answer {
			t.Errorf("got %q, %v", body, err)
		}
		if waited := time.Since(began); waited != 900*time.Millisecond {
			t.Errorf("the request goes on after %s: want that of its turn", waited)
		}
	})
}

// answering is a webhook that takes a while, and whose answer is read while its call lasts.
type answering string

// RoundTrip implements http.RoundTripper.
func (a answering) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(100 * time.Millisecond)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: lasting{r.Context(), strings.NewReader(string(a))}, Request: r,
	}, nil
}

// lasting is a body that can be read while a context lasts.
type lasting struct {
	ctx context.Context //nolint:containedctx // that of the call
	*strings.Reader
}

// Read implements io.Reader.
func (l lasting) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	return l.Reader.Read(p)
}

// WriteTo implements io.WriterTo: io.Copy would not Read.
func (l lasting) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{l}) }

// Close implements io.Closer.
func (lasting) Close() error { return nil }
