package served_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// TestMatches has the patterns of encryption configurations.
func TestMatches(t *testing.T) {
	secrets, own := schema.GroupResource{Resource: "secrets"}, schema.GroupResource{Group: "example.com", Resource: "gadgets"}
	cases := map[string]struct {
		patterns     []string
		secrets, own bool
	}{
		"none":        {nil, true, true},
		"built-in":    {[]string{"secrets"}, true, false},
		"custom":      {[]string{"gadgets.example.com"}, false, true},
		"core group":  {[]string{"*."}, true, false},
		"other group": {[]string{"*.example.com"}, false, true},
		"everything":  {[]string{"*.*"}, true, true},
		"several":     {[]string{"configmaps", "gadgets.example.com"}, false, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if a, b := served.Matches(secrets, c.patterns), served.Matches(own, c.patterns); a != c.secrets || b != c.own {
				t.Errorf("secrets %v, gadgets.example.com %v", a, b)
			}
		})
	}
}
