package addresses

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fixture is a table whose time stands still, and what it refused.
type fixture struct {
	*Table
	time    time.Time
	refused map[Limit]int
}

func newFixture(l Limits) *fixture {
	f := &fixture{time: time.Unix(1_000_000, 0), refused: map[Limit]int{}}
	f.Table = New(l, func() time.Time { return f.time }, func(l Limit) { f.refused[l]++ })
	return f
}

// limits are small ones.
func limits() Limits {
	return Limits{Connections: 2, HandshakesPerSecond: 1, HandshakeBurst: 3, FailuresPerSecond: 0.5, FailureBurst: 2}
}

// TestWhoIsOne: clients that share a limit.
func TestWhoIsOne(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, first, second string
		same                  bool
	}{
		"same":             {"it is one", "192.0.2.1", "192.0.2.1", true},
		"neighbours":       {"an address of IPv4 is one customer", "192.0.2.1", "192.0.2.2", false},
		"network of IPv6":  {"a customer has a /64 and chooses in it", "2001:db8::1", "2001:db8::ffff:1", true},
		"networks of IPv6": {"they are two customers", "2001:db8::1", "2001:db8:0:1::1", false},
		"IPv4 in IPv6":     {"a socket of both families names it so", "192.0.2.1", "::ffff:192.0.2.1", true},
		"all IPv4 in IPv6": {"they are not one network", "::ffff:192.0.2.1", "::ffff:192.0.2.2", false},
		"zone":             {"an interface is no client", "fe80::1%eth0", "fe80::1%eth1", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := limits()
			l.Connections = 1
			f := newFixture(l)
			if !f.Enter(netip.MustParseAddr(tc.first)) {
				t.Fatal("the first connection is refused")
			}
			if entered := f.Enter(netip.MustParseAddr(tc.second)); entered == tc.same {
				t.Errorf("%s: a second connection enters: %v", tc.reason, entered)
			}
		})
	}
}

// entered counts how many of some attempts enter.
func entered(attempts int, enter func() bool) (n int) {
	for range attempts {
		if enter() {
			n++
		}
	}
	return n
}

// TestConnections: as many as are allowed, and again as many when they are closed.
func TestConnections(t *testing.T) {
	t.Parallel()
	f, a := newFixture(limits()), netip.MustParseAddr("192.0.2.1")
	if n := entered(3, func() bool { return f.Enter(a) }); n != 2 {
		t.Error("want 2 connections and no third")
	}
	f.Leave(a)
	if !f.Enter(a) {
		t.Error("a connection that was closed counts")
	}
	f.time = f.time.Add(time.Hour)
	f.Leave(a)
	f.Leave(a)
	f.Leave(a) // once too often
	if len(f.connected) != 0 {
		t.Errorf("%d addresses are kept as connected", len(f.connected))
	}
	if n := entered(3, func() bool { return f.Enter(a) }); n != 2 {
		t.Error("want 2 connections and no third, after all were closed")
	}
	if diff := cmp.Diff(map[Limit]int{Connections: 2}, f.refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// TestHandshakes: a burst, and then as many as come with time.
func TestHandshakes(t *testing.T) {
	t.Parallel()
	f, a := newFixture(limits()), netip.MustParseAddr("192.0.2.1")
	enter := func() bool {
		entered := f.Enter(a)
		if entered {
			f.Leave(a)
		}
		return entered
	}
	if n := entered(4, enter); n != 3 {
		t.Error("want a burst of 3")
	}
	f.time = f.time.Add(2 * time.Second)
	if n := entered(3, enter); n != 2 {
		t.Error("want one more for each second")
	}
	if diff := cmp.Diff(map[Limit]int{Handshakes: 2}, f.refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// TestFailures: they are counted for each address, and say when the next may come.
func TestFailures(t *testing.T) {
	t.Parallel()
	f, a := newFixture(limits()), netip.MustParseAddr("192.0.2.1")
	for range 2 {
		if _, refused := f.Fail(a); refused || f.refused[Failures] > 0 {
			t.Error("a failure of the burst is refused")
		}
	}
	if !f.Failed(a) {
		t.Error("the burst is used up, and it does not say so")
	}
	if after, refused := f.Fail(a); !refused || after != 2*time.Second {
		t.Errorf("%v, %v; want a refusal for 2 s", after, refused)
	}
	if f.Failed(netip.MustParseAddr("192.0.2.2")) {
		t.Error("another address is refused")
	}
	f.time = f.time.Add(2 * time.Second)
	if f.Failed(a) {
		t.Error("it is refused after its time")
	}
	if _, refused := f.Fail(a); refused {
		t.Error("it is refused after its time")
	}
	if diff := cmp.Diff(map[Limit]int{Failures: 1}, f.refused); diff != "" {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
}

// TestWithoutLimits: what is trusted, without a limit or without an address passes.
func TestWithoutLimits(t *testing.T) {
	t.Parallel()
	none := Limits{Connections: -1, HandshakesPerSecond: -1, HandshakeBurst: 1, FailuresPerSecond: 1, FailureBurst: -1}
	trusting := limits()
	trusting.Trusted = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	cases := map[string]struct {
		reason, address string
		limits          Limits
	}{
		"no limit":        {"each limit can be taken off", "192.0.2.1", none},
		"trusted":         {"a proxy brings many clients", "192.0.2.1", trusting},
		"trusted in IPv6": {"it is the same proxy", "::ffff:192.0.2.1", trusting},
		"network of IPv6": {"networks of both families are trusted", "2001:db8::1", trusting},
		"no address":      {"a client in the process, or of a socket with a path, has none", "", limits()},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(tc.limits)
			a, _ := netip.ParseAddr(tc.address)
			for range 100 {
				if _, refused := f.Fail(a); refused || !f.Enter(a) || f.Failed(a) {
					t.Fatalf("%s: it is refused", tc.reason)
				}
			}
			for range 100 {
				f.Leave(a)
			}
		})
	}
}

// TestMemoryIsBounded: addresses are forgotten, the oldest first, but none that has a
// connection.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	f := newFixture(limits())
	held := netip.MustParseAddr("192.0.2.1")
	f.Enter(held)
	f.Enter(held)
	a := netip.MustParseAddr("10.0.0.1")
	for range 3 * remembered {
		f.Fail(a)
		f.Enter(a)
		f.Leave(a)
		a = a.Next()
	}
	if n := f.idle.Len(); n > remembered || len(f.connected) != 1 {
		t.Errorf("%d addresses and %d with a connection are remembered", n, len(f.connected))
	}
	if f.Enter(held) {
		t.Error("connections that are open were forgotten")
	}
}
