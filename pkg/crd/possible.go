package crd

import (
	"math"
	"slices"
	"unicode/utf8"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// possible is how many errors an object can have at most. It is made without upstream's
// validators, of which each takes kilobytes: what is simple to check is checked, and the
// rest counts as wrong. So the objects of honest clients have none, or few.
type possible struct {
	// errors is how many are found in alternatives too, which are compared with each
	// other even if another alternative is right.
	errors int
}

// node is a schema whose parts are found without a copy of them.
type node struct {
	*spec.Schema
	properties          map[string]*node
	items, more, not    *node
	allOf, anyOf, oneOf []*node
	// odd says that it has what no CRD may have.
	odd bool
}

func newNode(s *spec.Schema) *node {
	if s == nil {
		return nil
	}
	n := &node{Schema: s, properties: make(map[string]*node, len(s.Properties)), not: newNode(s.Not)}
	for name, property := range s.Properties {
		n.properties[name] = newNode(&property)
	}
	if s.Items != nil {
		n.items = newNode(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		n.more = newNode(s.AdditionalProperties.Schema)
	}
	n.allOf, n.anyOf, n.oneOf = newNodes(s.AllOf), newNodes(s.AnyOf), newNodes(s.OneOf)
	n.odd = len(s.PatternProperties) > 0 || len(s.Dependencies) > 0 || s.AdditionalItems != nil ||
		s.Items != nil && len(s.Items.Schemas) > 0
	return n
}

func newNodes(all []spec.Schema) []*node {
	nodes := make([]*node, len(all))
	for i := range all {
		nodes[i] = newNode(&all[i])
	}
	return nodes
}

// many is a number of errors that is always too large.
const many = math.MaxInt32

// reports returns how many errors validation can report of a value at most.
func (p *possible) reports(s *node, data any) int {
	if p.errors > mostErrors {
		return 0 // they are counted then
	}
	if s.odd {
		p.errors = many
		return 0
	}
	n := one(!hasType(s.Schema, data)) + one(!isOneOf(s.Enum, data))
	if data == nil {
		p.errors += n
		return n
	}
	switch v := data.(type) {
	case bool:
	case string:
		n += one(!fits(int64(len(v)), s.MaxLength) || s.Pattern != "" ||
			s.MinLength != nil && int64(utf8.RuneCountInString(v)) < *s.MinLength)
		n += one(s.Format != "")
	case int64:
		n += one(s.Format != "" && s.Format != "int64" && (s.Format != "int32" || v != int64(int32(v)))) + bounds(s.Schema, float64(v))
	case float64:
		n += one(s.Format != "" || !s.Type.Contains("number")) + bounds(s.Schema, v)
	case []any:
		n += one(!fits(int64(len(v)), s.MaxItems)) + one(s.MinItems != nil && int64(len(v)) < *s.MinItems) + one(s.UniqueItems)
	case map[string]any:
		n += one(!fits(int64(len(v)), s.MaxProperties)) + one(s.MinProperties != nil && int64(len(v)) < *s.MinProperties)
		n += missing(s.Required, v)
	default:
		p.errors = many
	}
	p.errors += n
	return n + p.inside(s, data) + p.alternatives(s, data)
}

// inside is of what is in a value.
func (p *possible) inside(s *node, data any) int {
	n := 0
	switch v := data.(type) {
	case []any:
		if s.items == nil {
			return 0
		}
		for _, item := range v {
			n += p.reports(s.items, item)
		}
	case map[string]any:
		for name, member := range v {
			known, ok := s.properties[name]
			switch more := s.AdditionalProperties; {
			case ok:
				n += p.reports(known, member)
			case more != nil && !more.Allows:
				n++
				p.errors++
			case s.more != nil:
				n += p.reports(s.more, member)
			}
		}
	}
	return n
}

// alternatives is of the other schemas that a value has.
func (p *possible) alternatives(s *node, data any) int {
	n := 0
	for _, alternative := range s.allOf {
		n += p.reports(alternative, data)
	}
	n += one(n > 0)
	if len(s.anyOf) > 0 {
		if least, most := p.each(s.anyOf, data); least > 0 {
			n += 1 + most
		}
	}
	if len(s.oneOf) > 0 {
		_, most := p.each(s.oneOf, data)
		n += 1 + most // two may be right
	}
	if s.not != nil {
		p.reports(s.not, data)
		n++
	}
	p.errors += n // those that say that alternatives are wrong, and more
	return n
}

// each returns the least and the most that one of several schemas can report.
func (p *possible) each(all []*node, data any) (least, most int) {
	least = many
	for _, one := range all {
		n := p.reports(one, data)
		least, most = min(least, n), max(most, n)
	}
	return least, most
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// hasType tells whether a value surely has the type of its schema.
func hasType(s *spec.Schema, data any) bool {
	if len(s.Type) == 0 {
		return s.Format == "" || data == nil
	}
	switch data.(type) {
	case nil:
		return s.Nullable || s.Type.Contains("null")
	case bool:
		return s.Type.Contains("boolean")
	case string:
		return s.Type.Contains("string")
	case int64:
		return s.Type.Contains("integer") || s.Type.Contains("number")
	case float64:
		return s.Type.Contains("number")
	case []any:
		return s.Type.Contains("array")
	case map[string]any:
		return s.Type.Contains("object")
	}
	return false
}

// isOneOf tells whether a value is surely one of those that there may be.
func isOneOf(all []any, data any) bool {
	if len(all) == 0 {
		return true
	}
	text, ok := data.(string)
	return ok && slices.ContainsFunc(all, func(v any) bool { known, ok := v.(string); return ok && known == text })
}

func fits(n int64, most *int64) bool { return most == nil || n <= *most }

// bounds is how many errors a number can have by its bounds. One that its schema's type
// does not hold is an error too, so only whole ones that every type holds are surely none.
func bounds(s *spec.Schema, v float64) int {
	whole := func(b float64) bool { return b == math.Trunc(b) && math.Abs(b) < 1<<31 }
	n := 0
	if s.Maximum != nil && (s.ExclusiveMaximum || !whole(*s.Maximum) || v > *s.Maximum) {
		n += 2
	}
	if s.Minimum != nil && (s.ExclusiveMinimum || !whole(*s.Minimum) || v < *s.Minimum) {
		n += 2
	}
	if s.MultipleOf != nil {
		n += 2
	}
	return n
}
