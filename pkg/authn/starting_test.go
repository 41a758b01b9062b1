package authn_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestStarting: whom certificates are of is known from the first connection on, and whoever is
// not known yet is told to come back. A connection without a certificate stays one without, and
// clients take 401 for the end.
func TestStarting(t *testing.T) {
	t.Parallel()
	starts, start := make(chan struct{}), make(chan struct{})
	waits := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "wait", Start: func(context.Context, *controlplane.Plane) error {
			close(starts)
			<-start
			return nil
		}})
		return nil
	})
	proxies, clients := newCA(t), newCA(t)
	revoked := clients.sign(t, soon(), "eve")
	lists := filepath.Join(t.TempDir(), "revoked")
	replace(t, lists, clients.revoke(t, revoked), 0o644)
	s, err := controlplane.New("test").Listen("127.0.0.1:0").Storage(memory.Store{}).With(waits,
		authn.Proxy{ClientCAFile: proxies.file(t)}, authn.ClientCA{File: clients.file(t), RevokedFile: lists},
		authn.Tokens{File: tokenFile(t, "good,tom,\n")}, authn.Admin{}, middleware.AfterAuthentication("echo", echo)).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s, starts)
	url := "https://" + s.Address().String()
	cases := map[string]struct {
		call           call
		starting, then int
	}{
		"proxy":   {call{cert: proxies.sign(t, soon(), "front"), header: http.Header{"X-Remote-User": {"ann"}}}, 200, 200},
		"client":  {call{cert: clients.sign(t, soon(), "ann")}, 200, 200},
		"revoked": {call{cert: revoked}, 503, 401},
		"token":   {call{token: "good"}, 503, 200},
		"nobody":  {call{}, 503, 401},
	}
	for name, tc := range cases {
		if got := tc.call.do(t, url); got.status != tc.starting {
			t.Errorf("%s: %d while the server starts, want %d", name, got.status, tc.starting)
		} else if (got.status == http.StatusServiceUnavailable) != (got.retry != "") {
			t.Errorf("%s: %d while the server starts, to be tried again after %q s", name, got.status, got.retry)
		}
	}
	close(start)
	<-s.Ready()
	for name, tc := range cases {
		if got := tc.call.do(t, url); got.status != tc.then {
			t.Errorf("%s: %d when the server is ready, want %d", name, got.status, tc.then)
		}
	}
}
