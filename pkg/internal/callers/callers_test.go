package callers_test

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
)

func TestOf(t *testing.T) {
	t.Parallel()
	cases := map[string]struct{ reason, user, namespace, want string }{
		"user":         {"a person is one", "jane", "", "jane"},
		"nobody":       {"nobody is known", "", "", ""},
		"account":      {"who may make one may make many", "system:serviceaccount:shop:robot", "shop", "system:serviceaccounts:shop"},
		"other":        {"it is of the same namespace", "system:serviceaccount:shop:other", "shop", "system:serviceaccounts:shop"},
		"elsewhere":    {"namespaces do not meet", "system:serviceaccount:shop2:robot", "shop2", "system:serviceaccounts:shop2"},
		"no name":      {"an account has a name", "system:serviceaccount:shop", "", "system:serviceaccount:shop"},
		"empty name":   {"an account has a name", "system:serviceaccount:shop:", "", "system:serviceaccount:shop:"},
		"no namespace": {"an account has a namespace", "system:serviceaccount::robot", "", "system:serviceaccount::robot"},
		"component":    {"it is no account", "system:kube-scheduler", "", "system:kube-scheduler"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := callers.Of(tc.user); got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
			if got := callers.Namespace(tc.user); got != tc.namespace {
				t.Errorf("%s: got namespace %q, want %q", tc.reason, got, tc.namespace)
			}
		})
	}
}
