package authz

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// ruler answers a question for rules.
type ruler struct {
	incomplete bool
	err        error
	rules      []authorizer.ResourceRuleInfo
}

func (r ruler) RulesFor(context.Context, user.Info, string) (
	[]authorizer.ResourceRuleInfo, []authorizer.NonResourceRuleInfo, bool, error,
) {
	return r.rules, nil, r.incomplete, r.err
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
		"starting":         {"all would be left out, as if there were nothing", "default", ruler{incomplete: true, err: errors.Join(nil, starting)}, true},
		"starting, no one": {"in a list of all namespaces as well", "", ruler{incomplete: true, err: starting}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &authorizer.AttributesRecord{Verb: "get", Namespace: tc.namespace, Resource: "configmaps"}
			if got := mayGetNone(t.Context(), a, tc.rules); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}

// TestGettableByRules: a list is decided by the rules where they tell all, and by the authorizer otherwise.
func TestGettableByRules(t *testing.T) {
	t.Parallel()
	rule := func(verb, group, resource string, names ...string) authorizer.ResourceRuleInfo {
		return &authorizer.DefaultResourceRuleInfo{
			Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names,
		}
	}
	cases := map[string]struct {
		reason      string
		verb        string
		rules       ruler
		want, asked bool
	}{
		"named":       {"the rule names it", "list", ruler{rules: []authorizer.ResourceRuleInfo{rule("get", "", "configmaps", "a", "b")}}, true, false},
		"not named":   {"the rule names others", "list", ruler{rules: []authorizer.ResourceRuleInfo{rule("get", "", "configmaps", "b")}}, false, false},
		"all":         {"the rule names none", "list", ruler{rules: []authorizer.ResourceRuleInfo{rule("*", "*", "*")}}, true, false},
		"other verb":  {"to list is not to get", "list", ruler{rules: []authorizer.ResourceRuleInfo{rule("list", "", "configmaps")}}, false, false},
		"other group": {"the resource has no group", "list", ruler{rules: []authorizer.ResourceRuleInfo{rule("get", "apps", "configmaps")}}, false, false},
		"other kind":  {"it is about pods", "list", ruler{rules: []authorizer.ResourceRuleInfo{rule("get", "", "pods")}}, false, false},
		"incomplete":  {"an authorizer cannot list its rules", "list", ruler{incomplete: true}, true, true},
		"failed":      {"rules are not known", "list", ruler{err: errors.New("away")}, true, true},
		"watch":       {"rights change while it goes on", "watch", ruler{}, true, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			asked := false
			keep := gettable(t.Context(), &authorizer.AttributesRecord{Verb: tc.verb, Resource: "configmaps"}, controlplane.Authority{
				Rules: tc.rules,
				Authorizer: authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
					asked = true
					return Allow, "", nil
				}),
			})
			got, err := keep(t.Context(), "default", "a")
			if err != nil || got != tc.want || asked != tc.asked {
				t.Errorf("%s: got %t, want %t; asked the authorizer: %t, want %t; %v", tc.reason, got, tc.want, asked, tc.asked, err)
			}
		})
	}
}
