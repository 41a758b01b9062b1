package rbac

import (
	"encoding/binary"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

const (
	// mostSteps is what one comparison may take: some 50 ms, and 80 MB for a moment.
	// Roles of real charts take less than a hundredth.
	mostSteps = 10_000_000
	// mostMissing is how many combinations are listed that are not held.
	mostMissing = 1_000
	// longestValue is how many bytes of a value are repeated that is not held.
	longestValue = 256
)

// comparison compares rules with those that somebody holds. Each combination of an
// API group, a resource, a verb and a name has to be covered by one held rule, as in
// Kubernetes (https://github.com/kubernetes/component-helpers/blob/v0.37.2/auth/rbac/validation/policy_comparator.go).
// But it does not make the combinations, of which a few kilobytes can have millions:
// values that the same held rules cover are compared as one.
type comparison struct {
	// These are the numbers of the held rules that have a value.
	verbs, groups, resources, names, urls map[string][]int
	// prefixes are those of urls that end in "*".
	prefixes []string
	// unnamed are the held rules for objects of all names.
	unnamed []int
	// words is the size of a set of held rules.
	words int
	// left is how many steps it may still take.
	left int

	missing []missing
	// more says that more is missing.
	more bool
}

// missing is a combination that is not held. It was at a place in the rules.
type missing struct {
	at   place
	rule rbacv1.PolicyRule
}

// place is the number of a rule, 1 for URLs, and the numbers of the values in it.
type place [6]int

// rules is a set of the rules that are held.
type rules []uint64

// class is a number of values that the same held rules cover.
type class struct {
	values []int // their numbers
	by     rules
}

func newComparison(held []rbacv1.PolicyRule) *comparison {
	c := &comparison{
		verbs: map[string][]int{}, groups: map[string][]int{}, resources: map[string][]int{},
		names: map[string][]int{}, urls: map[string][]int{},
		words: (len(held) + 63) / 64, left: mostSteps,
	}
	for i := range held {
		rule := &held[i]
		add(c.verbs, rule.Verbs, i)
		add(c.groups, rule.APIGroups, i)
		add(c.resources, rule.Resources, i)
		add(c.names, rule.ResourceNames, i)
		add(c.urls, rule.NonResourceURLs, i)
		if len(rule.ResourceNames) == 0 {
			c.unnamed = append(c.unnamed, i)
		}
	}
	for url := range c.urls {
		if strings.HasSuffix(url, "*") {
			c.prefixes = append(c.prefixes, url)
		}
	}
	return c
}

// add says that a held rule has the values.
func add(to map[string][]int, values []string, rule int) {
	for _, value := range values {
		if known := to[value]; len(known) == 0 || known[len(known)-1] != rule {
			to[value] = append(known, rule)
		}
	}
}

// compare finds what is missing of the wanted rules, until it is too much to list. It
// returns whether it could look at them all, or at as many as matter.
func (c *comparison) compare(wanted []rbacv1.PolicyRule) bool {
	for i := range wanted {
		rule := &wanted[i]
		if !c.compareResources(rule, i) || !c.compareURLs(rule, i) {
			break
		}
	}
	slices.SortFunc(c.missing, func(a, b missing) int { return slices.Compare(a.at[:], b.at[:]) })
	c.more = c.more || c.left < 0
	return c.left >= 0 || len(c.missing) > 0
}

func (c *comparison) compareResources(rule *rbacv1.PolicyRule, number int) bool {
	verbs := c.classes(rule.Verbs, c.orAll(c.verbs))
	groups := c.classes(rule.APIGroups, c.orAll(c.groups))
	resources := c.classes(rule.Resources, func(value string) [][]int {
		by := [][]int{c.resources[rbacv1.ResourceAll], c.resources[value]}
		if _, sub, ok := strings.Cut(value, "/"); ok {
			by = append(by, c.resources["*/"+sub])
		}
		return by
	})
	unnamed := func(value string) [][]int { return [][]int{c.unnamed, c.names[value]} }
	names := c.classes(rule.ResourceNames, unnamed)
	if len(rule.ResourceNames) == 0 {
		names = c.classes([]string{""}, func(string) [][]int { return [][]int{c.unnamed} })
	}
	return c.cross([][]class{groups, resources, verbs, names}, nil, nil, func(values []int) bool {
		m := missing{place{number, 0, values[0], values[1], values[2], values[3]}, rbacv1.PolicyRule{
			APIGroups: one(rule.APIGroups, values[0]), Resources: one(rule.Resources, values[1]), Verbs: one(rule.Verbs, values[2]),
		}}
		if len(rule.ResourceNames) > 0 {
			m.rule.ResourceNames = one(rule.ResourceNames, values[3])
		}
		return c.miss(m)
	})
}

func (c *comparison) compareURLs(rule *rbacv1.PolicyRule, number int) bool {
	if len(rule.NonResourceURLs) == 0 {
		return true
	}
	urls := c.classes(rule.NonResourceURLs, func(value string) [][]int {
		by := [][]int{c.urls[value]}
		for _, prefix := range c.prefixes {
			c.left -= 1 + min(len(prefix), len(value))/64
			if strings.HasPrefix(value, strings.TrimRight(prefix, "*")) {
				by = append(by, c.urls[prefix])
			}
		}
		return by
	})
	verbs := c.classes(rule.Verbs, c.orAll(c.verbs))
	unnamed := c.classes([]string{""}, func(string) [][]int { return [][]int{c.unnamed} })
	return c.cross([][]class{urls, verbs, unnamed}, nil, nil, func(values []int) bool {
		return c.miss(missing{place{number, 1, values[0], values[1]}, rbacv1.PolicyRule{
			NonResourceURLs: one(rule.NonResourceURLs, values[0]), Verbs: one(rule.Verbs, values[1]),
		}})
	})
}

// orAll is which rules have a value, or "*".
func (*comparison) orAll(known map[string][]int) func(value string) [][]int {
	return func(value string) [][]int { return [][]int{known["*"], known[value]} }
}

// classes are the values, each once, by which held rules cover them.
func (c *comparison) classes(values []string, covering func(value string) [][]int) []class {
	var (
		all   []class
		seen  = make(map[string]bool, len(values))
		known = map[string]int{}
		by    = make(rules, c.words)
		key   = make([]byte, 0, 8*c.words)
	)
	for i, value := range values {
		if c.left -= 8 + 2*c.words; c.left < 0 {
			break
		}
		if seen[value] {
			continue
		}
		seen[value] = true
		clear(by)
		for _, list := range covering(value) {
			c.left -= len(list)
			for _, rule := range list {
				by[rule/64] |= 1 << (rule % 64)
			}
		}
		key = key[:0]
		for _, word := range by {
			key = binary.LittleEndian.AppendUint64(key, word)
		}
		n, ok := known[string(key)]
		if !ok {
			n = len(all)
			known[string(key)] = n
			all = append(all, class{by: slices.Clone(by)})
		}
		all[n].values = append(all[n].values, i)
	}
	return all
}

// cross calls miss with each combination of values that no held rule covers, until it
// returns false. It returns whether it looked at all.
func (c *comparison) cross(axes [][]class, by rules, at []class, miss func(values []int) bool) bool {
	if len(axes) == 0 {
		if slices.ContainsFunc(by, func(word uint64) bool { return word != 0 }) {
			return true
		}
		return expand(at, nil, miss)
	}
	both := make(rules, c.words)
	for _, next := range axes[0] {
		if c.left -= 8 + c.words; c.left < 0 {
			return false
		}
		for i, word := range next.by {
			both[i] = word
			if by != nil {
				both[i] &= by[i]
			}
		}
		if !c.cross(axes[1:], both, append(at, next), miss) {
			return false
		}
	}
	return true
}

// expand calls miss with each combination of the values in classes.
func expand(classes []class, values []int, miss func(values []int) bool) bool {
	if len(classes) == 0 {
		return miss(values)
	}
	for _, value := range classes[0].values {
		if !expand(classes[1:], append(values, value), miss) {
			return false
		}
	}
	return true
}

func (c *comparison) miss(m missing) bool {
	if c.more = len(c.missing) == mostMissing; c.more {
		return false
	}
	c.missing = append(c.missing, m)
	return true
}

// one is a value in a list of its own.
func one(values []string, i int) []string { return []string{shorten(values[i], longestValue)} }

// shorten cuts a text.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
