package serviceaccount

import (
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// FuzzToken: whatever is sent, only what was signed says who somebody is.
func FuzzToken(f *testing.F) {
	content, err := pki.NewTokenKey()
	if err != nil {
		f.Fatal(err)
	}
	keys, err := parseKeys(content)
	if err != nil {
		f.Fatal(err)
	}
	c := &claims{
		Audiences: audiences{"a"}, Issuer: "https://a", ID: "1", Subject: "system:serviceaccount:default:builder",
		Kubernetes: kubernetes{
			Namespace: "default", ServiceAccount: reference{Name: "builder", UID: "2"}, Secret: &reference{Name: "s", UID: "3"},
		},
	}
	c.lasts(time.Now(), 1000*time.Hour) // longer than anybody fuzzes
	good, err := keys.sign(c)
	if err != nil {
		f.Fatal(err)
	}
	signed := good[:strings.LastIndex(good, ".")]
	parts := strings.Split(good, ".")
	for _, seed := range []string{
		good, "", ".", "..", "...", signed, good + "=", good + ".", good[:len(good)-1], "e30.e30.", "bnVsbA.bnVsbA.bnVsbA",
		"eyJhbGciOiJub25lIn0." + parts[1] + ".", parts[0] + ".eyJhdWQiOlt7fV19." + parts[2], parts[0] + "." + parts[1] + "." + parts[0],
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		p, ok := parse(token)
		if !ok {
			return
		}
		issuer := p.issuer()
		got, err := keys.verify(p)
		if err != nil {
			return
		}
		if p.content != signed || issuer != c.Issuer || got.Subject != c.Subject || got.check(time.Now()) != nil {
			t.Errorf("nobody signed %q, which says %+v", token, got)
		}
	})
}
