package authn

import (
	"strings"
	"testing"
)

// FuzzTokens: whatever a token file has in it, nobody gets in without a token
// and a name, and an error never has a token in it.
func FuzzTokens(f *testing.F) {
	for _, seed := range []string{
		"", "secret,ann,1\n", "secret,ann,1,\"growers,pickers\"\nother,bob,\n", "secret,ann,1\nsecret,bob,2\n", ",ann,1\n", "secret,,1\n", "a b,ann,1\n",
		"secret,ann\n", "secret,ann,1,a,b\n", "\"secret\"\"\",ann,1,\", ,a, \"\n", "\"secret\nmore\",ann,1\n", "# secret,ann,1\n", "\"secret,ann,1\n", "\ufeffsecret,ann,1\r\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		users, err := parseTokens(content)
		if err != nil {
			if users != nil {
				t.Errorf("%d users and an error: %v", len(users), err)
			}
			return
		}
		if len(users) == 0 {
			t.Error("neither users nor an error")
		}
		for token, who := range users {
			if token == "" || strings.ContainsAny(token, " \t\r\n") || who.Name == "" {
				t.Errorf("token %q is of %+v", token, who)
			}
			for _, g := range who.Groups {
				if g == "" || strings.TrimSpace(g) != g || strings.Contains(g, ",") {
					t.Errorf("group %q", g)
				}
			}
		}
	})
}

// FuzzAuthenticationConfiguration: what is no configuration is an error.
func FuzzAuthenticationConfiguration(f *testing.F) {
	for _, seed := range []string{
		"", "{}", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {url: 'https://a', audiences: [b]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n",
		"apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\njwt: [{issuer: {url: x}}]\n",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nother: 1\n", "apiVersion: v1\nkind: List\n", "a: &a [*a]\n", "[", "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if config, err := parseConfig(content); (config == nil) == (err == nil) {
			t.Errorf("%+v, %v", config, err)
		}
	})
}
