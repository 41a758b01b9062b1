package authn_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// tokenFile writes a file of tokens.
func tokenFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	replace(t, file, []byte(content), 0o600)
	return file
}

func TestTokenFiles(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason, content string
		mode            os.FileMode
		want            string
	}{
		"empty":       {"a file cut short must not lock all out", "", 0o600, "the file has no tokens"},
		"columns":     {"a user has a UID column", "secret,ann\n", 0o600, `line 1 has 2 columns: want token,user,uid,"group1,group2"`},
		"unquoted":    {"groups without quotes are columns", "secret,ann,1,a,b\n", 0o600, "line 1 has 5 columns"},
		"no token":    {"an empty token is no secret", "a,ann,1\n,bob,2\n", 0o600, "line 2: the token is empty"},
		"space":       {"no header could bring it", "secret ,ann,1\n", 0o600, "has a space in it"},
		"no user":     {"nobody", "secret,,1\n", 0o600, "line 1: the user name is empty"},
		"twice":       {"one of two users would win", "secret,ann,1\nsecret,bob,2\n", 0o600, "line 2: a line above has the same token"},
		"quotes":      {"not CSV", "secret,\"ann,1\n", 0o600, "parse error on line 1"},
		"all read":    {"everybody may read the secrets", "secret,ann,1\n", 0o644, "every user of this machine has permissions on it (mode 0644): run chmod 0600 "},
		"all write":   {"everybody may add themselves", "secret,ann,1\n", 0o602, "(mode 0602)"},
		"group reads": {"how secrets are mounted", ",ann,1\n", 0o640, "line 1: the token is empty"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "tokens.csv")
			replace(t, file, []byte(tc.content), tc.mode)
			err := buildError(t, authn.Tokens{File: file})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("%s: %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error tells a token: %v", err)
			}
		})
	}
	if err := buildError(t, authn.Tokens{File: filepath.Join(t.TempDir(), "none")}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that does not exist: %v", err)
	}
}

func TestTokensAreReloaded(t *testing.T) {
	t.Parallel()
	file := tokenFile(t, "one,ann,7,\"growers, pickers,\"\ntwo,bob,\n")
	url := serve(t, authn.Tokens{File: file})
	got := call{token: "one"}.do(t, url)
	want := who{Name: "ann", UID: "7", Groups: []string{"growers", "pickers", "system:authenticated"}, status: 200}
	got.Header = nil
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(who{})); diff != "" {
		t.Errorf("ann (-want +got):\n%s", diff)
	}
	steps := []struct {
		reason, content string
		mode            os.FileMode
		token           string
		ok              func(who) bool
		nothing         bool
	}{
		{"a new token is good", "one,ann,\nthree,cat,\n", 0o600, "three", named("cat"), false},
		{"one that is gone is not", "", 0, "two", refused, false},
		{"a file that is wrong changes nothing", "four,dan", 0o600, "one", named("ann"), true},
		{"nor does one that all may read", "four,dan,\n", 0o644, "four", refused, true},
		{"the next good one counts", "four,dan,\n", 0o600, "four", named("dan"), false},
		{"and only that", "", 0, "one", refused, false},
	}
	for _, s := range steps {
		if s.mode != 0 {
			replace(t, file, []byte(s.content), s.mode)
		}
		if s.nothing {
			<-time.After(1500 * time.Millisecond) // it has been looked at by then
		}
		eventually(t, s.reason, url, call{token: s.token}, s.ok)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := (call{token: "four"}).do(t, url); !named("dan")(got) {
		t.Errorf("without a file: %d", got.status)
	}
	if got := (call{}).do(t, url); !refused(got) {
		t.Errorf("without credentials: %d", got.status)
	}
}

func TestTokenPartsAreAskedInOrder(t *testing.T) {
	t.Parallel()
	url := serve(t, authn.Tokens{File: tokenFile(t, "same,ann,\n")}, authn.Tokens{File: tokenFile(t, "same,bob,\nother,cat,\n")})
	if got := (call{token: "same"}).do(t, url); got.Name != "ann" {
		t.Errorf("the first part that knows a token decides: %q", got.Name)
	}
	if got := (call{token: "other"}).do(t, url); got.Name != "cat" {
		t.Errorf("one that does not know it does not: %q", got.Name)
	}
}
