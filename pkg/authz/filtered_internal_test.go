package authz

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// ruler answers a question for rules.
type ruler struct {
	incomplete bool
	err        error
}

func (r ruler) RulesFor(context.Context, user.Info, string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	return nil, nil, r.incomplete, r.err
}

// TestMayGetNone: a list is refused where nothing can be in it, and where it is not
// known yet what can.
func TestMayGetNone(t *testing.T) {
	t.Parallel()
	_, _, _, starting := (&current{}).RulesFor(t.Context(), nil, "")
	cases := map[string]struct {
		reason    string
		namespace string
		rules     ruler
		want      bool
	}{
		"none":             {"no rule lets the user get one", "default", ruler{}, true},
		"incomplete":       {"an authorizer cannot list its rules", "default", ruler{incomplete: true}, false},
		"everywhere":       {"rules for one namespace may", "", ruler{}, false},
		"failed":           {"rules are not known, decisions may be", "default", ruler{err: errors.New("away")}, false},
		"starting":         {"all would be left out, as if there were nothing", "default", ruler{true, errors.Join(nil, starting)}, true},
		"starting, no one": {"in a list of all namespaces as well", "", ruler{true, starting}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &authorizer.AttributesRecord{Verb: "list", Namespace: tc.namespace, Resource: "configmaps"}
			if got := mayGetNone(t.Context(), a, tc.rules); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
