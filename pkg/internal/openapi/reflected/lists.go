package reflected

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The extensions which strategic merge patch and server-side apply read.
const (
	extPatchStrategy = "x-kubernetes-patch-strategy"
	extPatchMergeKey = "x-kubernetes-patch-merge-key"
	extListType      = "x-kubernetes-list-type"
	extListMapKeys   = "x-kubernetes-list-map-keys"
)

// lists adds how property p is merged, from its patch tags and from [ListType], which overrides them.
func (d *drawing) lists(p property, schema *spec.Schema) {
	tag := p.field.Tag
	strategy, mergeKey := tag.Get("patchStrategy"), tag.Get("patchMergeKey")
	if strategy != "" {
		schema.AddExtension(extPatchStrategy, strategy)
	}
	if mergeKey != "" {
		schema.AddExtension(extPatchMergeKey, mergeKey)
	}
	key := target{kind: "ListType", typ: p.owner, field: p.field.Name}
	if list, ok := d.settings.lists[key]; ok {
		d.used[key] = true
		d.list(list, schema)
		return
	}
	if !slices.Contains(strings.Split(strategy, ","), "merge") || !schema.Type.Contains("array") {
		return
	}
	elem := deref(deref(p.field.Type).Elem())
	switch {
	case mergeKey != "":
		d.list(listType{kind: "map", keys: []string{mergeKey}}, schema)
	case elem.Kind() != reflect.Struct:
		d.list(listType{kind: "set"}, schema)
	}
}

func (d *drawing) list(list listType, schema *spec.Schema) {
	if !schema.Type.Contains("array") {
		d.fail("has a list type, but is not a list")
		return
	}
	switch list.kind {
	case "atomic", "set":
		if len(list.keys) > 0 {
			d.fail("has map keys and list type %q: only lists of type \"map\" have keys", list.kind)
		}
	case "map":
		d.mapKeys(list.keys, schema)
	default:
		d.fail("unknown list type %q: use \"atomic\", \"set\" or \"map\"", list.kind)
	}
	schema.AddExtension(extListType, list.kind)
}

func (d *drawing) mapKeys(keys []string, schema *spec.Schema) {
	elem := deref(deref(d.field.Type).Elem())
	if elem.Kind() != reflect.Struct {
		d.fail("a list with merge keys must contain structs, not %s", goName(elem))
		return
	}
	if len(keys) == 0 {
		d.fail("a list of type \"map\" needs the names of its keys")
	}
	// Errors in the element itself are reported where it is defined.
	list, _ := properties(elem)
	var values []any
	for _, key := range keys {
		if !slices.ContainsFunc(list, func(p property) bool { return p.name == key }) {
			d.fail("the merge key %q is not a JSON field of %s", key, goName(elem))
		}
		values = append(values, key)
	}
	schema.AddExtension(extListMapKeys, values)
}
