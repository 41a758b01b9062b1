package serviceaccount_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
)

// TestAudiencesOfThePlane: a token that is not made for an audience is for this
// server, and a review says so, whoever recognised it.
func TestAudiencesOfThePlane(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("static,ann,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, serviceaccount.Tokens{Audiences: []string{"https://plane.example.com", "plane"}}, authn.Tokens{File: file})
	s.account(t, "builder")
	tokenFor := func(audience string) string {
		return s.token(t, "builder", authenticationv1.TokenRequestSpec{Audiences: []string{audience}})
	}
	cases := map[string]struct {
		reason      string
		token       string
		asked, want []string
		user        string
	}{
		"static":             {"it is for the plane", "static", nil, []string{"https://plane.example.com", "plane"}, "ann"},
		"static, plane":      {"which is who asks", "static", []string{"vault", "plane"}, []string{"plane"}, "ann"},
		"static, other":      {"and nobody else", "static", []string{"vault"}, nil, ""},
		"account":            {"one of an account has its own", tokenFor("plane"), nil, []string{"plane"}, "system:serviceaccount:default:builder"},
		"account, elsewhere": {"as a review may ask for", tokenFor("vault"), []string{"vault"}, []string{"vault"}, "system:serviceaccount:default:builder"},
		"account, other":     {"but not here", tokenFor("vault"), []string{"plane"}, nil, ""},
	}
	for name, c := range cases {
		got := s.review(t, c.token, c.asked...)
		if got.User.Username != c.user || got.Authenticated != (c.user != "") {
			t.Errorf("%s: %s: %+v", name, c.reason, got)
		}
		if diff := cmp.Diff(c.want, got.Audiences); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", name, c.reason, diff)
		}
	}
}
