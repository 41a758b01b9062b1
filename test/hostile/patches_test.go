package hostile

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	jsonPatch      = "application/json-patch+json"
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// patch is a patch of the object that is kept, dry.
func (k kind) patch(contentType, query, body string) request {
	return request{method: "PATCH", path: k.one() + dry + query, contentType: contentType, body: body}
}

// unreadable is a patch after which the object is no object of its kind.
func (k kind) unreadable(r request) row {
	return row{request: r, code: 422, status: metav1.StatusReasonInvalid}
}

// patchRows are patches of every type that cannot be read or applied.
func patchRows(k kind) map[string]row {
	bad := func(r request) row { return row{request: r, code: 400, status: metav1.StatusReasonBadRequest} }
	invalid := func(r request) row { return row{request: r, code: 422, status: metav1.StatusReasonInvalid} }
	unsupported := func(contentType string) row {
		return row{request: k.patch(contentType, "", `{}`), code: 415, status: metav1.StatusReasonUnsupportedMediaType}
	}
	rows := map[string]row{
		"patch of plain json":          unsupported("application/json"),
		"patch of yaml":                unsupported("application/yaml"),
		"patch of an unknown type":     unsupported("application/quilt"),
		"patch without a type":         unsupported(noContentType),
		"patch of dirt":                unsupported(";;"),
		"patch of cbor":                unsupported("application/apply-patch+cbor"),
		"patch of a missing object":    {request: request{method: "PATCH", path: k.collection + "/missing", contentType: mergePatch, body: `{}`}, code: 404, status: metav1.StatusReasonNotFound},
		"patch in a wet run":           invalid(request{method: "PATCH", path: k.one() + "?dryRun=Wet", contentType: mergePatch, body: `{}`}),
		"patch by a long manager":      invalid(k.patch(mergePatch, "&fieldManager="+strings.Repeat("x", 200), `{}`)),
		"patch by force":               invalid(k.patch(mergePatch, "&force=true", `{}`)),
		"patch that is too large":      {request: k.patch(mergePatch, "", `{"a":"`+strings.Repeat("x", 3<<20)+`"}`), code: 413, status: metav1.StatusReasonRequestEntityTooLarge, message: "limit is 3145728"},
		"json: not json":               bad(k.patch(jsonPatch, "", `[`)),
		"json: empty":                  bad(k.patch(jsonPatch, "", ``)),
		"json: an object":              bad(k.patch(jsonPatch, "", `{"op":"add"}`)),
		"json: a word":                 bad(k.patch(jsonPatch, "", `"add"`)),
		"json: deep":                   bounded(bad(k.patch(jsonPatch, "", `[{"op":"add","path":"/metadata/labels","value":`+nested("[", "", "]", 100_000)+`}]`))),
		"json: unknown operation":      invalid(k.patch(jsonPatch, "", `[{"op":"burn","path":"/metadata"}]`)),
		"json: no path":                invalid(k.patch(jsonPatch, "", `[{"op":"add","value":1}]`)),
		"json: missing path":           invalid(k.patch(jsonPatch, "", `[{"op":"remove","path":"/a/b/c"}]`)),
		"json: a test that fails":      invalid(k.patch(jsonPatch, "", `[{"op":"test","path":"/metadata/name","value":"x"}]`)),
		"json: copy from nowhere":      invalid(k.patch(jsonPatch, "", `[{"op":"copy","from":"/a/b","path":"/metadata/labels"}]`)),
		"json: null operations":        invalid(k.patch(jsonPatch, "", `[null]`)),
		"json: a path of numbers":      invalid(k.patch(jsonPatch, "", `[{"op":"add","path":"/metadata/finalizers/99999999999999999999","value":"x"}]`)),
		"json: a path before the list": invalid(k.patch(jsonPatch, "", `[{"op":"add","path":"/metadata/managedFields/-5","value":{}}]`)),
		"json: a hole in the list":     invalid(k.patch(jsonPatch, "", `[{"op":"add","path":"/metadata/managedFields/1000000000","value":{}}]`)),
		"json: remove the whole":       {request: k.patch(jsonPatch, "", `[{"op":"remove","path":""}]`), code: 422, status: metav1.StatusReasonInvalid},
		"json: the whole by nothing":   {request: k.patch(jsonPatch, "", `[{"op":"replace","path":""}]`), code: 422, status: metav1.StatusReasonInvalid, reason: "kube-apiserver panics: found by FuzzHandler"},
		"json: nothing, in a charset":  {request: k.patch(jsonPatch+"; charset=utf-8", "", `[{"op":"replace","path":""}]`), code: 422, status: metav1.StatusReasonInvalid, reason: "a media type has parameters"},
		"json: nothing, twice named":   {request: k.patch(jsonPatch, "", `[{"op":"replace","path":"","Path":"/x"}]`), code: 422, status: metav1.StatusReasonInvalid, reason: "names are told apart by case"},
		"json: the whole is null":      {request: k.patch(jsonPatch, "", `[{"op":"replace","path":"","value":null}]`), code: 422, status: metav1.StatusReasonInvalid, reason: "kube-apiserver answers 422 or 400"},
		"json: the whole is a list":    {request: k.patch(jsonPatch, "", `[{"op":"replace","path":"","value":[]}]`), code: 422, status: metav1.StatusReasonInvalid},
		"json: too many operations":    {request: k.patch(jsonPatch, "", "["+strings.TrimSuffix(strings.Repeat(`{"op":"test","path":"/kind","value":"`+k.name+`"},`, 10_001), ",")+"]"), code: 413, status: metav1.StatusReasonRequestEntityTooLarge},
		"json: copies of copies":       {request: k.patch(jsonPatch, "", copies()), code: 422, status: metav1.StatusReasonInvalid, reason: "copies are limited to 3 MiB"},
		"json: another name":           bad(k.patch(jsonPatch, "", `[{"op":"replace","path":"/metadata/name","value":"other"}]`)),
		"json: another kind":           k.unreadable(k.patch(jsonPatch, "", `[{"op":"replace","path":"/kind","value":"Other"}]`)),
		"json: an old version":         {request: k.patch(jsonPatch, "", `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`), code: 409, status: metav1.StatusReasonConflict},
		"merge: not json":              bad(k.patch(mergePatch, "", `{`)),
		"merge: empty":                 bad(k.patch(mergePatch, "", ``)),
		"merge: an array":              bad(k.patch(mergePatch, "", `[]`)),
		"merge: a word":                bad(k.patch(mergePatch, "", `"x"`)),
		"merge: deep":                  bounded(bad(k.patch(mergePatch, "", nested(`{"a":`, "1", "}", 100_000)))),
		"merge: another name":          bad(k.patch(mergePatch, "", `{"metadata":{"name":"other"}}`)),
		"merge: no name":               bad(k.patch(mergePatch, "", `{"metadata":{"name":null}}`)),
		"merge: no metadata":           bad(k.patch(mergePatch, "", `{"metadata":null}`)),
		"merge: another kind":          k.unreadable(k.patch(mergePatch, "", `{"kind":"Other"}`)),
		"merge: an old version":        {request: k.patch(mergePatch, "", `{"metadata":{"resourceVersion":"1"}}`), code: 409, status: metav1.StatusReasonConflict},
		"merge: a version of letters":  {request: k.patch(mergePatch, "", `{"metadata":{"resourceVersion":"abc"}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"merge: another uid":           invalid(k.patch(mergePatch, "", `{"metadata":{"uid":"x"}}`)),
		"merge: labels of numbers":     k.unreadable(k.patch(mergePatch, "", `{"metadata":{"labels":{"a":1}}}`)),
		"merge: labels of dirt":        invalid(k.patch(mergePatch, "", `{"metadata":{"labels":{"a b":"c"}}}`)),
		"apply: no manager":            invalid(k.patch(applyPatch, "", k.object(k.kept, "", ""))),
		"apply: not yaml":              bad(k.patch(applyPatch, "&fieldManager=x", `a: [`)),
		"apply: empty":                 bad(k.patch(applyPatch, "&fieldManager=x", ``)),
		"apply: an array":              bad(k.patch(applyPatch, "&fieldManager=x", `[]`)),
		"apply: a word":                bad(k.patch(applyPatch, "&fieldManager=x", `x`)),
		"apply: no kind":               bad(k.patch(applyPatch, "&fieldManager=x", `metadata: {name: kept}`)),
		"apply: another kind":          bad(k.patch(applyPatch, "&fieldManager=x", strings.Replace(k.object(k.kept, "", ""), quoted(k.name), `"Other"`, 1))),
		"apply: another version":       bad(k.patch(applyPatch, "&fieldManager=x", strings.Replace(k.object(k.kept, "", ""), quoted(k.apiVersion), `"v7"`, 1))),
		"apply: another name":          bad(k.patch(applyPatch, "&fieldManager=x&force=true", k.object("other", "", ""))),
		"apply: managed fields":        {request: k.patch(applyPatch, "&fieldManager=x", k.object(k.kept, `,"managedFields":[{"manager":"x"}]`, "")), code: 400, status: metav1.StatusReasonBadRequest, message: "metadata.managedFields must be nil"},
		"apply: an old version":        {request: k.patch(applyPatch, "&fieldManager=x&force=true", k.object(k.kept, `,"resourceVersion":"1"`, "")), code: 409, status: metav1.StatusReasonConflict},
		"apply: many aliases":          bounded(bad(k.patch(applyPatch, "&fieldManager=x", aliases(k)))),
		"apply: a field twice":         {request: k.patch(applyPatch, "&fieldManager=x&force=true&fieldValidation=Strict", k.object(k.kept, `,"labels":{},"labels":{}`, "")), code: 400, status: metav1.StatusReasonBadRequest},
		"apply: labels of numbers":     {request: k.patch(applyPatch, "&fieldManager=x&force=true", k.object(k.kept, `,"labels":{"a":1}`, "")), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"apply: no force of dirt":      {request: k.patch(applyPatch, "&fieldManager=x", k.object(k.kept, `,"annotations":[]`, "")), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
	}
	if !k.strategic {
		rows["strategic"] = unsupported(strategicPatch)
		return rows
	}
	for name, r := range map[string]row{
		"strategic: not json":             bad(k.patch(strategicPatch, "", `{`)),
		"strategic: empty":                bad(k.patch(strategicPatch, "", ``)),
		"strategic: an array":             bad(k.patch(strategicPatch, "", `[]`)),
		"strategic: deep":                 bounded(bad(k.patch(strategicPatch, "", nested(`{"a":`, "1", "}", 100_000)))),
		"strategic: metadata is a word":   invalid(k.patch(strategicPatch, "", `{"metadata":"x"}`)),
		"strategic: labels are a list":    invalid(k.patch(strategicPatch, "", `{"metadata":{"labels":["a"]}}`)),
		"strategic: unknown directive":    {request: k.patch(strategicPatch, "", `{"metadata":{"$patch":"burn"}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"strategic: directive of numbers": {request: k.patch(strategicPatch, "", `{"metadata":{"$patch":1}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"strategic: order of a word":      {request: k.patch(strategicPatch, "", `{"metadata":{"$setElementOrder/finalizers":"x"}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"strategic: order of nothing":     {request: k.patch(strategicPatch, "", `{"metadata":{"$setElementOrder/ownerReferences":[1]}}`), code: 200, reason: "there is nothing to order"},
		"strategic: keys to keep of dirt": {request: k.patch(strategicPatch, "", `{"metadata":{"$retainKeys":{}}}`), code: 400, status: metav1.StatusReasonBadRequest},
		"strategic: delete from a word":   {request: k.patch(strategicPatch, "", `{"metadata":{"$deleteFromPrimitiveList/finalizers":"x"}}`), code: 200, reason: "there is nothing to delete"},
		"strategic: owner without a key":  invalid(k.patch(strategicPatch, "", `{"metadata":{"ownerReferences":[{"name":"x"}]}}`)),
		"strategic: owners of words":      invalid(k.patch(strategicPatch, "", `{"metadata":{"ownerReferences":["x"]}}`)),
	} {
		rows[name] = r
	}
	return rows
}

// copies is a patch of a few bytes whose result doubles with every operation.
func copies() string {
	var b strings.Builder
	b.WriteString(`[{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 1000) + `"}}`)
	for i := range 40 {
		fmt.Fprintf(&b, `,{"op":"copy","from":"/metadata/annotations","path":"/metadata/annotations/b%d"}`, i)
	}
	b.WriteString(`]`)
	return b.String()
}
