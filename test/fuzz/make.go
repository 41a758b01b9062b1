package main

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/fxamacker/cbor/v2"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/yaml"
)

// sent is a request.
type sent struct {
	method, path, contentType, accept string
	body                              []byte
}

// endless tells whether the answer may have no end.
func (r sent) endless() bool {
	return strings.Contains(r.path, "watch") || strings.Contains(r.path, "follow")
}

// dice makes a request of random numbers, which are those of its number.
type dice struct{ *rand.Rand }

func (d dice) oneIn(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d dice, from ...T) T { return from[d.IntN(len(from))] }

// make makes the request of a number: the same one in every run.
func (s *server) make(number uint64) sent {
	d := dice{rand.New(rand.NewPCG(number, 0x5a17))}
	res := pick(d, s.resources...)
	r := sent{method: d.method(), accept: d.accept()}
	single := r.method != "POST" || strings.Contains(res.Name, "/")
	if r.method == "GET" || r.method == "DELETE" {
		single = d.oneIn(2)
	}
	r.path = d.path(res, single) + d.query(r.method)
	switch r.method {
	case "POST", "PUT":
		r.contentType, r.body = d.encode(d.object(res))
	case "PATCH":
		r.contentType, r.body = d.patch(res)
	case "DELETE":
		if d.oneIn(3) {
			r.contentType, r.body = d.encode(d.tree(map[string]any{
				"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "propagationPolicy": "Background",
			}))
		}
	}
	if d.oneIn(20) {
		r.body = d.bytes(r.body)
	}
	return r
}

func (d dice) method() string {
	switch n := d.IntN(100); {
	case n < 22:
		return "GET"
	case n < 47:
		return "POST"
	case n < 62:
		return "PUT"
	case n < 90:
		return "PATCH"
	case n < 98:
		return "DELETE"
	}
	return pick(d, "HEAD", "OPTIONS", "TRACE", "get", "PROPFIND")
}

// name is that of an object: few, so that they meet.
func (d dice) name() string {
	if d.oneIn(30) {
		return pick(d, "", "..", "%2e%2e", "a%2fb", "A", "a b", "%00", "ä", strings.Repeat("a", 300), "status", "scale", "a:b", "-", "{}")
	}
	return pick(d, "a", "b", "c")
}

func (d dice) path(res resource, single bool) string {
	prefix := "/apis/" + res.version
	if !strings.Contains(res.version, "/") {
		prefix = "/api/" + res.version
	}
	if res.Namespaced && !d.oneIn(20) {
		prefix += "/namespaces/" + pick(d, "a", "a", "a", "a", "default", "none", d.name())
	}
	main, sub, _ := strings.Cut(res.Name, "/")
	path := prefix + "/" + main
	if single || sub != "" {
		path += "/" + d.name()
	}
	if sub != "" {
		path += "/" + sub
	}
	switch {
	case d.oneIn(60):
		path += "/" + pick(d, "status", "scale", "proxy", "log", "x", "", "finalize", "token", "approval", "binding", "eviction")
	case d.oneIn(200):
		path = pick(d, "/", "/api", "/apis", "/openapi/v2", "/openapi/v3", "/version", "/healthz", "/metrics", "/livez/ping", "/x", "/api/v1/watch/pods")
	}
	return path
}

// query is a part of the parameters that an API server knows, and some that it does not.
func (d dice) query(method string) string {
	known := map[string]func() string{
		"dryRun":          func() string { return pick(d, "All", "All", "", "all", "All&dryRun=All", "x") },
		"fieldManager":    func() string { return pick(d, "m", "n", "", "a b", strings.Repeat("x", 129)) },
		"fieldValidation": func() string { return pick(d, "Strict", "Warn", "Ignore", "x") },
		"force":           func() string { return pick(d, "true", "false", "1", "x", "") },
		"labelSelector":   func() string { return pick(d, "a=b", "a", "!a", "a in (b,c)", "a in", "=", ",", "a=b=c", "a>1", "a>x") },
		"fieldSelector": func() string {
			return pick(d, "metadata.name=a", "metadata.name", "x=y", "spec.colour=a", "metadata.name!=a,", "=")
		},
		"limit": func() string { return pick(d, "1", "0", "-1", "x", "500", "9223372036854775808") },
		"continue": func() string {
			return pick(d, "x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "%")
		},
		"resourceVersion":      func() string { return pick(d, "0", "1", "", "x", "-1", "99999999999999999999", "7") },
		"resourceVersionMatch": func() string { return pick(d, "Exact", "NotOlderThan", "x", "") },
		"timeoutSeconds":       func() string { return pick(d, "1", "0", "-1", "x") },
		"watch":                func() string { return pick(d, "1", "true", "false", "x") },
		"sendInitialEvents":    func() string { return pick(d, "true", "false", "x") },
		"allowWatchBookmarks":  func() string { return pick(d, "true", "x") },
		"gracePeriodSeconds":   func() string { return pick(d, "0", "-1", "x", "30") },
		"propagationPolicy":    func() string { return pick(d, "Foreground", "Background", "Orphan", "x") },
		"orphanDependents":     func() string { return pick(d, "true", "x") },
		"pretty":               func() string { return pick(d, "true", "x") },
		"includeObject":        func() string { return pick(d, "None", "Object", "Metadata", "x") },
		"container":            func() string { return pick(d, "a", "") },
		"x":                    func() string { return pick(d, "", "y", "%ff", "%zz", ";") },
	}
	names := slices.Sorted(maps.Keys(known))
	var all []string
	if method == "PATCH" {
		all = append(all, "fieldManager=m")
	}
	if method != "GET" && !d.oneIn(4) {
		all = append(all, "dryRun=All") // so that not too much piles up
	}
	for d.oneIn(3) {
		name := pick(d, names...)
		all = append(all, name+"="+strings.ReplaceAll(known[name](), " ", "%20"))
	}
	if len(all) == 0 {
		return ""
	}
	return "?" + strings.Join(all, "&")
}

func (d dice) accept() string {
	if d.oneIn(2) {
		return ""
	}
	one := func() string {
		form := pick(d, "application/json", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "*/*", "text/plain", "x", "application/json;stream=watch")
		if d.oneIn(2) {
			form += ";as=" + pick(d, "Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList", "X")
			form += ";g=" + pick(d, "meta.k8s.io", "meta.k8s.io", "x") + ";v=" + pick(d, "v1", "v1", "v1beta1", "x")
		}
		if d.oneIn(8) {
			form += pick(d, ";q=0", ";q=0.5", ";q=x", ";;", ";pretty=1", ";charset=latin1")
		}
		return form
	}
	all := one()
	for d.oneIn(3) {
		all += "," + one()
	}
	return all
}

// object is one of a resource, as a tree, damaged.
func (d dice) object(res resource) any {
	gv, err := schema.ParseGroupVersion(res.version)
	if err != nil {
		return nil
	}
	if res.Version != "" {
		gv.Group, gv.Version = res.Group, res.Version // of a sub-resource with a kind of its own
	}
	gvk := gv.WithKind(res.Kind)
	tree := map[string]any{}
	if typed, err := scheme.Scheme.New(gvk); err == nil {
		d.fill(typed)
		if plain, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed); err == nil {
			tree = plain
		}
	} else if res.Kind == "Gourd" {
		tree["spec"] = map[string]any{
			"min": d.IntN(4), "max": d.IntN(4), "colour": "green", "any": d.value(2), "either": d.value(0),
			"list": []any{map[string]any{"name": d.name()}, map[string]any{"name": "b", "at": "2026-01-01T00:00:00Z"}},
		}
	} else if res.Kind == "CustomResourceDefinition" {
		if err := json.Unmarshal([]byte(gourds), &tree); err != nil {
			return nil
		}
	}
	tree["apiVersion"], tree["kind"] = gv.String(), res.Kind
	tree["metadata"] = d.metadata(res)
	return d.tree(tree)
}

func (d dice) metadata(res resource) map[string]any {
	name := pick(d, "a", "b", "c")
	if res.Kind == "CustomResourceDefinition" {
		name = "gourds.fuzz.example.com"
	}
	m := map[string]any{"name": name}
	if res.Namespaced {
		m["namespace"] = "a"
	}
	if d.oneIn(3) {
		m["labels"] = map[string]any{"a": "b"}
	}
	if d.oneIn(8) {
		m["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "x"}}
	}
	if d.oneIn(12) {
		m["managedFields"] = []any{map[string]any{"manager": "m", "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": d.value(2)}}
	}
	return m
}

// fill fills an object with what its type can hold.
func (d dice) fill(typed any) {
	randfill.NewWithSeed(d.Int64()).NilChance(0.6).NumElements(1, 2).MaxDepth(12).Funcs(
		func(s *string, c randfill.Continue) {
			*s = pick(d, "a", "b", "", "a.example.com", "TCP", "Always", "1", "a/b", "v1")
		},
		func(e *runtime.RawExtension, _ randfill.Continue) { *e = runtime.RawExtension{Raw: []byte(`{"a":1}`)} },
		func(o *runtime.Object, _ randfill.Continue) {},
	).Fill(typed)
}

// encode writes a tree in one of the forms, or says that it is in another.
func (d dice) encode(tree any) (contentType string, body []byte) {
	content, err := json.Marshal(tree)
	if err != nil {
		return "application/json", nil
	}
	contentType = pick(d, "application/json", "application/json", "application/json", "application/yaml", "application/cbor", "application/vnd.kubernetes.protobuf")
	switch contentType {
	case "application/yaml":
		if as, err := yaml.JSONToYAML(content); err == nil {
			content = as
		}
	case "application/cbor":
		if as, err := cbor.Marshal(tree); err == nil {
			content = append([]byte{0xd9, 0xd9, 0xf7}, as...)
		}
	case "application/vnd.kubernetes.protobuf":
		if as := protobuf(content); as != nil {
			content = as
		}
	}
	if d.oneIn(40) {
		contentType = pick(d, "", "x", "application/json; charset=x", "application/apply-patch+yaml", ";", "text/plain")
	}
	return contentType, content
}

// protobuf is an object of a known type in that form; nil if it is none.
func protobuf(content []byte) []byte {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(content, nil, nil)
	if err != nil {
		return nil
	}
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	encoded, err := runtime.Encode(info.Serializer, object)
	if err != nil {
		return nil
	}
	return encoded
}

// patch is one of the types of patches.
func (d dice) patch(res resource) (contentType string, body []byte) {
	tree := d.object(res)
	switch d.IntN(5) {
	case 0:
		content, _ := json.Marshal(d.tree(d.operations(tree))) // it is made of what JSON has
		return "application/json-patch+json", content
	case 1:
		content, _ := json.Marshal(tree)
		return "application/merge-patch+json", content
	case 2, 3:
		content, _ := json.Marshal(d.directives(tree, 4))
		return "application/strategic-merge-patch+json", content
	}
	content, _ := json.Marshal(tree)
	if d.oneIn(4) {
		if as, err := cbor.Marshal(tree); err == nil {
			return "application/apply-patch+cbor", as
		}
	}
	return "application/apply-patch+yaml", content
}

// operations are those of a JSON patch.
func (d dice) operations(tree any) []any {
	var all []any
	for range 1 + d.IntN(4) {
		all = append(all, map[string]any{
			"op": pick(d, "add", "remove", "replace", "move", "copy", "test", "x"), "path": d.pointer(tree), "from": d.pointer(tree), "value": d.value(2),
		})
	}
	return all
}

// pointer is a JSON pointer into the tree, or beside it.
func (d dice) pointer(tree any) string {
	path := ""
	for !d.oneIn(4) {
		switch t := tree.(type) {
		case map[string]any:
			if len(t) == 0 {
				return path + "/x"
			}
			key := pick(d, slices.Sorted(maps.Keys(t))...)
			path, tree = path+"/"+strings.ReplaceAll(key, "/", "~1"), t[key]
		case []any:
			return path + "/" + pick(d, "0", "-", "-1", "7", "x", "01")
		default:
			return path + pick(d, "", "", "/x", "/", "~", "/~2")
		}
	}
	return path
}
