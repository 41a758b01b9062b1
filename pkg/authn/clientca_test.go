package authn_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

func TestClientCA(t *testing.T) {
	t.Parallel()
	one, two := newCA(t), newCA(t)
	file := one.file(t)
	url := serve(t, authn.ClientCA{File: file})
	got := call{cert: one.sign(t, soon(), "ann", "growers", "pickers")}.do(t, url)
	if diff := cmp.Diff([]string{"growers", "pickers", "system:authenticated"}, got.Groups); got.Name != "ann" || diff != "" {
		t.Errorf("ann is %q (-want +got):\n%s", got.Name, diff)
	}
	cases := map[string]struct {
		reason string
		call   call
	}{
		"none":      {"no certificate", call{}},
		"expired":   {"one that ended", call{cert: one.sign(t, past(), "ann")}},
		"stranger":  {"another authority's", call{cert: two.sign(t, soon(), "ann")}},
		"no name":   {"one without a name is nobody's", call{cert: one.sign(t, soon(), "", "system:masters")}},
		"bad token": {"a token that nobody knows", call{token: "x"}},
	}
	for name, tc := range cases {
		if got := tc.call.do(t, url); !refused(got) {
			t.Errorf("%s: %s: %d, %+v", name, tc.reason, got.status, got)
		}
	}

	ann, bob := call{cert: one.sign(t, soon(), "ann")}, call{cert: two.sign(t, soon(), "bob")}
	replace(t, file, []byte("none"), 0o644)
	<-time.After(1500 * time.Millisecond) // it has been looked at by then
	if got := ann.do(t, url); !named("ann")(got) {
		t.Errorf("a file that is wrong changes nothing: %d", got.status)
	}
	replace(t, file, append(one.pem(), two.pem()...), 0o644)
	eventually(t, "another authority", url, bob, named("bob"))
	if got := ann.do(t, url); !named("ann")(got) {
		t.Errorf("beside the first: %d", got.status)
	}
	replace(t, file, two.pem(), 0o644)
	eventually(t, "an authority that is gone", url, ann, refused)
}

// TestClientCAForgets: what a connection was verified for ends with the
// authority, also when the connection stays.
func TestClientCAForgets(t *testing.T) {
	t.Parallel()
	one := newCA(t)
	file := one.file(t)
	url := serve(t, authn.ClientCA{File: file})
	client := clientOf(one.sign(t, soon(), "ann"))
	t.Cleanup(client.CloseIdleConnections)
	get := func() int {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if got := get(); got != http.StatusOK {
		t.Fatalf("with a certificate: %d", got)
	}
	replace(t, file, newCA(t).pem(), 0o644)
	for deadline := time.Now().Add(30 * time.Second); get() != http.StatusUnauthorized; {
		if time.Now().After(deadline) {
			t.Fatal("the connection is still good after its authority is gone")
		}
		<-time.After(50 * time.Millisecond)
	}
}
