package rbac

import (
	"iter"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Covers returns what the wanted rules allow and the owner's rules do not, in
// rules of one verb and one resource, object or URL each; none when the owner
// holds it all. It compares what is written: a wildcard is only covered by a
// wildcard, and all objects only by a rule without names.
func Covers(owner, wanted []rbacv1.PolicyRule) (uncovered []rbacv1.PolicyRule) {
	for i := range wanted {
		for g := range grants(&wanted[i]) {
			if !slices.ContainsFunc(owner, g.coveredBy) {
				uncovered = append(uncovered, g.rule())
			}
		}
	}
	return uncovered
}

// grant is the smallest thing a rule allows: one verb on one resource, object
// or URL.
type grant struct {
	verb string

	group    string
	resource string
	names    []string // at most one; none: all objects

	url    string
	isPath bool // url counts, and nothing but the verb beside it
}

// grants are all a rule allows. The order is that in which Kubernetes appends
// them to a role that it reconciles.
func grants(rule *rbacv1.PolicyRule) iter.Seq[grant] {
	return func(yield func(grant) bool) {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !named(grant{verb: verb, group: group, resource: resource}, rule.ResourceNames, yield) {
						return
					}
				}
			}
		}
		for _, url := range rule.NonResourceURLs {
			for _, verb := range rule.Verbs {
				if !yield(grant{verb: verb, url: url, isPath: true}) {
					return
				}
			}
		}
	}
}

// named yields a grant for each name, or as it is when there is none.
func named(g grant, names []string, yield func(grant) bool) bool {
	if len(names) == 0 {
		return yield(g)
	}
	for i := range names {
		g.names = names[i : i+1 : i+1]
		if !yield(g) {
			return false
		}
	}
	return true
}

func (g grant) rule() rbacv1.PolicyRule {
	if g.isPath {
		return rbacv1.PolicyRule{Verbs: []string{g.verb}, NonResourceURLs: []string{g.url}}
	}
	return rbacv1.PolicyRule{
		Verbs: []string{g.verb}, APIGroups: []string{g.group}, Resources: []string{g.resource},
		ResourceNames: slices.Clone(g.names),
	}
}

func (g grant) coveredBy(owner rbacv1.PolicyRule) bool {
	if !containsOrAll(owner.Verbs, g.verb) {
		return false
	}
	if len(owner.ResourceNames) > 0 && (len(g.names) == 0 || !slices.Contains(owner.ResourceNames, g.names[0])) {
		return false
	}
	if g.isPath {
		return urlIn(owner.NonResourceURLs, g.url)
	}
	return containsOrAll(owner.APIGroups, g.group) && resourceCoveredBy(owner.Resources, g.resource)
}

// resourceCoveredBy is about resources as rules write them: "pods/log" is
// covered by "pods/log", "*/log" and "*", but "pods/*" means nothing special.
func resourceCoveredBy(known []string, resource string) bool {
	_, subresource, isSub := strings.Cut(resource, "/")
	return slices.ContainsFunc(known, func(k string) bool {
		return k == rbacv1.ResourceAll || k == resource || isSub && isResource(k, rbacv1.ResourceAll, subresource)
	})
}
