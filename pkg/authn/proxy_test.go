package authn_test

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

func TestProxy(t *testing.T) {
	t.Parallel()
	proxies, clients := newCA(t), newCA(t)
	url := serve(t,
		authn.Proxy{
			ClientCAFile: proxies.file(t), AllowedNames: []string{"front"},
			UsernameHeaders: []string{"X-Remote-User", "X-My-User"}, GroupHeaders: []string{"X-My-Group"},
			UIDHeaders: []string{"X-My-Uid"}, ExtraHeaderPrefixes: []string{"X-My-Extra-"},
		},
		authn.ClientCA{File: clients.file(t)},
		authn.Tokens{File: tokenFile(t, "good,tom,\n")},
		authn.Anonymous{Paths: []string{"/livez"}})
	spoofed := http.Header{
		"X-My-User": {"root"}, "X-My-Uid": {"0"}, "X-My-Group": {"system:masters", "more"}, "X-My-Extra-Scopes": {"all"},
		"X-Remote-User": {""}, "X-Remote-Group": {"system:masters"},
	}
	front, client := proxies.sign(t, soon(), "front"), clients.sign(t, soon(), "ann")
	cases := map[string]struct {
		reason string
		call   call
		want   who
	}{
		"proxy": {
			reason: "a proxy tells who calls",
			call:   call{header: spoofed, cert: front},
			want: who{
				Name: "root", UID: "0", Groups: []string{"system:masters", "more", "system:authenticated"},
				Extra: map[string][]string{"scopes": {"all"}}, status: 200,
			},
		},
		"nobody":       {"a proxy is nobody itself", call{cert: front}, who{status: 401}},
		"expired":      {"an old certificate proves nothing", call{header: spoofed, cert: proxies.sign(t, past(), "front")}, who{status: 401}},
		"name":         {"another of the authority's is no proxy", call{header: spoofed, cert: proxies.sign(t, soon(), "back")}, who{status: 401}},
		"same name":    {"another authority's of that name is no proxy", call{header: spoofed, cert: newCA(t).sign(t, soon(), "front")}, who{status: 401}},
		"none":         {"without a certificate the headers say nothing", call{header: spoofed}, who{status: 401}},
		"not anon":     {"a proxy that names nobody is not anonymous", call{path: "/livez", cert: front}, who{status: 401}},
		"client":       {"another client stays itself", call{header: spoofed, cert: client}, who{Name: "ann", Groups: []string{"system:authenticated"}, status: 200}},
		"client front": {"whatever its name is", call{header: spoofed, cert: clients.sign(t, soon(), "front")}, who{Name: "front", Groups: []string{"system:authenticated"}, status: 200}},
		"token":        {"so does one with a token", call{header: spoofed, token: "good"}, who{Name: "tom", Groups: []string{"system:authenticated"}, status: 200}},
		"anonymous":    {"and one without a name", call{path: "/livez", header: spoofed}, who{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}, status: 200}},
	}
	for name, tc := range cases {
		got := tc.call.do(t, url)
		for h := range spoofed {
			if _, ok := got.Header[h]; ok {
				t.Errorf("%s: header %s gets through", name, h)
			}
		}
		delete(got.Extra, "authentication.kubernetes.io/credential-id")
		if len(got.Extra) == 0 {
			got.Extra = nil
		}
		got.Header = nil
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(who{})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, tc.reason, diff)
		}
	}
}

func TestProxyDefaults(t *testing.T) {
	t.Parallel()
	proxies := newCA(t)
	file := proxies.file(t)
	url := serve(t, authn.Proxy{ClientCAFile: file})
	header := http.Header{
		"X-Remote-User": {"ann"}, "X-Remote-Uid": {"7"}, "X-Remote-Group": {"growers"}, "X-Remote-Extra-Scopes": {"all"},
	}
	got := call{header: header, cert: proxies.sign(t, soon(), "any")}.do(t, url)
	got.Header = nil
	want := who{
		Name: "ann", UID: "7", Groups: []string{"growers", "system:authenticated"},
		Extra: map[string][]string{"scopes": {"all"}}, status: 200,
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(who{})); diff != "" {
		t.Errorf("the usual headers, and a proxy of any name (-want +got):\n%s", diff)
	}
	other := newCA(t)
	replace(t, file, other.pem(), 0o644)
	eventually(t, "an authority that is gone", url, call{header: header, cert: proxies.sign(t, soon(), "any")}, refused)
	if got := (call{header: header, cert: other.sign(t, soon(), "any")}).do(t, url); !named("ann")(got) {
		t.Errorf("the next authority: %d", got.status)
	}
}
