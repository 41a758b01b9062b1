package rbac

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/component-helpers/auth/rbac/validation"
)

// sample makes lists of rules with few different values, so that many are covered.
func sample(r *rand.Rand) []rbacv1.PolicyRule {
	some := func(most int, of ...string) []string {
		var list []string
		for range r.IntN(most + 1) {
			list = append(list, of[r.IntN(len(of))])
		}
		return list
	}
	all := make([]rbacv1.PolicyRule, r.IntN(5))
	for i := range all {
		all[i].Verbs = some(4, "get", "list", "create", "*", "")
		if r.IntN(3) > 0 {
			all[i].APIGroups = some(3, "", "apps", "batch", "*")
			all[i].Resources = some(4, "pods", "pods/log", "jobs/log", "*/log", "*", "*/*", "jobs", "/", "a/b/c", "*/b/c")
			all[i].ResourceNames = some(r.IntN(3), "a", "b", "", "*")
		}
		if r.IntN(3) == 0 {
			all[i].NonResourceURLs = some(3, "/a", "/a/b", "/a/*", "/*", "*", "/a**", "", "/ab")
		}
	}
	return all
}

// once is the rules without values that are there twice.
func once(all []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var rules []rbacv1.PolicyRule
	for _, rule := range all {
		for _, list := range []*[]string{&rule.Verbs, &rule.APIGroups, &rule.Resources, &rule.ResourceNames, &rule.NonResourceURLs} {
			var values []string
			for _, value := range *list {
				if !slices.Contains(values, value) {
					values = append(values, value)
				}
			}
			*list = values
		}
		rules = append(rules, rule)
	}
	return rules
}

// TestCompare: the same is missing as in Kubernetes, in the same order.
func TestCompare(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same in each run
	covered := 0
	for range 5_000 {
		held, wanted := sample(r), sample(r)
		if r.IntN(4) == 0 { // rules that many others do not cover
			for range 70 {
				held = append([]rbacv1.PolicyRule{{Verbs: []string{"never"}}}, held...)
			}
		}
		ok, want := validation.Covers(held, once(wanted))
		c := newComparison(held)
		if !c.compare(wanted) || c.more {
			t.Fatalf("%v is too much", wanted)
		}
		var got []rbacv1.PolicyRule
		for _, m := range c.missing {
			got = append(got, m.rule)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || ok != (len(got) == 0) {
			t.Fatalf("held %v, wanted %v: missing (-Kubernetes, +got):\n%s", held, wanted, diff)
		}
		if ok && len(wanted) > 0 {
			covered++
		}
	}
	if covered < 100 {
		t.Errorf("only %d samples are covered", covered)
	}
}

// values are n of them.
func values(n int, prefix string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return all
}

// lists is a Reader for somebody who holds rules everywhere.
type lists []rbacv1.PolicyRule

func (lists) Role(string, string) (*rbacv1.Role, error) { return nil, nil }

func (l lists) ClusterRole(string) (*rbacv1.ClusterRole, error) {
	return &rbacv1.ClusterRole{Rules: l}, nil
}

func (lists) Bindings(namespace string, key Key) ([]*rbacv1.RoleBinding, error) {
	if namespace != "" || key.Kind != rbacv1.UserKind {
		return nil, nil
	}
	return []*rbacv1.RoleBinding{{
		Subjects: []rbacv1.Subject{{Kind: key.Kind, Name: key.Name}}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "all"},
	}}, nil
}

// TestCombinations: what has millions of combinations is compared, or refused, in little time.
func TestCombinations(t *testing.T) {
	t.Parallel()
	cube := func(n int) []rbacv1.PolicyRule {
		return []rbacv1.PolicyRule{{Verbs: values(n, "v"), APIGroups: values(n, "g"), Resources: values(n, "r")}}
	}
	with := func(change func(rule *rbacv1.PolicyRule)) []rbacv1.PolicyRule {
		all := cube(5_000)
		change(&all[0])
		return all
	}
	// Each held rule has some values of its own, so that no two values are alike.
	scattered := func(n int) []rbacv1.PolicyRule {
		all := make([]rbacv1.PolicyRule, n)
		for i := range all {
			value := func(prefix string) []string { return []string{fmt.Sprintf("%s%d", prefix, i)} }
			all[i] = rbacv1.PolicyRule{Verbs: value("v"), APIGroups: value("g"), Resources: value("r")}
		}
		return append(all, cube(n)...)
	}
	urls := func(n int, suffix string) []rbacv1.PolicyRule {
		all := values(n, "/"+strings.Repeat("a", 50))
		for i := range all {
			all[i] += suffix
		}
		return []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: all}}
	}
	one := cube(1)
	for name, tc := range map[string]struct {
		reason       string
		held, wanted []rbacv1.PolicyRule
		want         string // part of the error; "": none
	}{
		"nothing held":     {"a part of what is missing is listed", nil, cube(5_000), "and more"},
		"all held":         {"values that are covered alike are one", []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}}, cube(5_000), ""},
		"the same held":    {"values that are covered alike are one", cube(5_000), cube(5_000), ""},
		"one of them held": {"the rest is missing", one, cube(5_000), "and more"},
		"one missing": {"one combination of many is found", cube(5_000), with(func(rule *rbacv1.PolicyRule) {
			rule.Verbs = append(rule.Verbs, "more")
			rule.APIGroups, rule.Resources = []string{"g1"}, []string{"r1"}
		}), `held:` + "\n" + `{APIGroups:["g1"], Resources:["r1"], Verbs:["more"]}`},
		"scattered, small":     {"a thousand rules of one chart", scattered(40), cube(40), ""},
		"scattered":            {"no two values are alike: there is a limit", scattered(1_000), cube(1_000), "split them"},
		"names":                {"a name is one more dimension", nil, with(func(rule *rbacv1.PolicyRule) { rule.ResourceNames = values(5_000, "n") }), "and more"},
		"long values":          {"values are cut", nil, with(func(rule *rbacv1.PolicyRule) { rule.Verbs[0] = strings.Repeat("é", 1<<20) }), "and more"},
		"the same value often": {"values are compared once", nil, with(func(rule *rbacv1.PolicyRule) { clear(rule.Verbs) }), "and more"},
		"URLs":                 {"prefixes are compared one by one: there is a limit", urls(5_000, "*"), urls(5_000, "/b"), "split them"},
		"other URLs":           {"nor is there a product here", nil, urls(5_000, ""), "and more"},
	} {
		t.Run(name, func(t *testing.T) {
			begin, text := time.Now(), ""
			if err := New(lists(tc.held)).Confirm(t.Context(), &user.DefaultInfo{Name: "ann"}, "shop", tc.wanted); err != nil {
				text = err.Error()
			}
			if (text == "") != (tc.want == "") || !strings.Contains(text, tc.want) || len(text) > 2*longestText {
				t.Errorf("%s: got %d bytes, %s, want %q", tc.reason, len(text), shorten(text, 500), tc.want)
			}
			if took := time.Since(begin); took > 5*time.Second { // 0.1 s; the product takes minutes
				t.Errorf("%s: it took %v", tc.reason, took)
			} else {
				t.Log(took)
			}
		})
	}
}
