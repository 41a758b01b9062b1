package main

import (
	"maps"
	"slices"
	"strings"
)

// tree damages a tree in some places, or in none.
func (d dice) tree(t any) any {
	for d.oneIn(2) {
		t = d.change(t, 8)
	}
	return t
}

// change changes one place below a node.
func (d dice) change(node any, depth int) any {
	if depth == 0 || d.oneIn(6) {
		return d.value(2)
	}
	switch n := node.(type) {
	case map[string]any:
		if len(n) == 0 || d.oneIn(8) {
			n[pick(d, "x", "", "a.b/c", "name", "kind", "$patch", "metadata")] = d.value(2)
			return n
		}
		key := pick(d, slices.Sorted(maps.Keys(n))...)
		if d.oneIn(5) {
			delete(n, key)
			return n
		}
		n[key] = d.change(n[key], depth-1)
		return n
	case []any:
		switch {
		case len(n) == 0 || d.oneIn(5):
			return append(n, d.value(2))
		case d.oneIn(5):
			return append(n, n[d.IntN(len(n))])
		}
		i := d.IntN(len(n))
		n[i] = d.change(n[i], depth-1)
		return n
	}
	return d.value(1)
}

// value is whatever JSON can hold.
func (d dice) value(depth int) any {
	switch n := d.IntN(12); {
	case n == 0:
		return nil
	case n == 1:
		return d.oneIn(2)
	case n == 2:
		return pick[any](d, 0, -1, 1, 80, 65536, 1<<31, int64(1)<<62, 0.5, 1e300, -1e-9)
	case n < 8 || depth == 0:
		return pick(d, "", "a", "b", "x y", "1", "1Gi", "100m", "a/b", "..", "*", "true", "null", "\x00", "ä", "2026-01-01T00:00:00Z", "yesterday",
			"1e99999", "-1", "0x1", "a.example.com", "[", "$(a)", "10.0.0.1", "::1", "10.0.0.0/8", "MA==", strings.Repeat("a", 300))
	case n < 10:
		var all []any
		for range d.IntN(3) {
			all = append(all, d.value(depth-1))
		}
		return all
	}
	all := map[string]any{}
	for range d.IntN(3) {
		all[pick(d, "a", "name", "x", "f:a", "k:{\"a\":1}", "", "$patch", "key", "values")] = d.value(depth - 1)
	}
	return all
}

// directives adds those of strategic merge patches to a tree.
// https://github.com/kubernetes/community/blob/main/contributors/devel/sig-api-machinery/strategic-merge-patch.md
func (d dice) directives(node any, depth int) any {
	if depth == 0 {
		return node
	}
	switch n := node.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(n)) {
			if d.oneIn(3) {
				n[key] = d.directives(n[key], depth-1)
			}
			switch d.IntN(12) {
			case 0:
				n["$setElementOrder/"+key] = pick[any](d, []any{}, []any{"a"}, []any{map[string]any{"name": "a"}}, "x", d.value(2))
			case 1:
				n["$deleteFromPrimitiveList/"+key] = pick[any](d, []any{"a"}, "x", d.value(2))
			}
		}
		if d.oneIn(8) {
			n["$patch"] = pick[any](d, "delete", "replace", "merge", "x", 1, nil)
		}
		if d.oneIn(12) {
			n["$retainKeys"] = pick[any](d, []any{"a"}, []any{}, "x", []any{1})
		}
		return n
	case []any:
		for i := range n {
			n[i] = d.directives(n[i], depth-1)
		}
		if d.oneIn(6) {
			n = append(n, map[string]any{"$patch": pick[any](d, "delete", "replace", "x"), "name": pick[any](d, "a", nil, 1)})
		}
		return n
	}
	return node
}

// bytes damages what is sent.
func (d dice) bytes(b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + d.IntN(4) {
		if len(b) == 0 {
			return b
		}
		at := d.IntN(len(b))
		switch d.IntN(4) {
		case 0:
			b[at] ^= byte(1 << d.IntN(8))
		case 1:
			b = b[:at]
		case 2:
			b = slices.Insert(b, at, pick(d, byte(0), byte('"'), byte('{'), byte('['), byte(0xff), byte('\n')))
		default:
			b = slices.Delete(b, at, min(len(b), at+1+d.IntN(8)))
		}
	}
	return b
}
