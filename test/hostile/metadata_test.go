package hostile

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// metadataRows are names, resource versions and options that do not fit.
func metadataRows(k kind) map[string]row {
	invalid := func(body, message string) row {
		return row{request: request{method: "POST", path: k.collection + dry, body: body}, code: 422, status: metav1.StatusReasonInvalid, message: message}
	}
	put := func(body string, code int, status metav1.StatusReason) row {
		return row{request: request{method: "PUT", path: k.one() + dry, body: body}, code: code, status: status}
	}
	remove := func(body string, code int, status metav1.StatusReason) row {
		return row{request: request{method: "DELETE", path: k.one() + dry, body: body}, code: code, status: status}
	}
	named := func(name string) string {
		return strings.Replace(k.object(k.fresh, "", ""), quoted(k.fresh), quoted(name), 1)
	}
	nameless := strings.Replace(k.object(k.fresh, "", ""), `"name":`+quoted(k.fresh), `"labels":{}`, 1)
	rows := map[string]row{
		"no name":                       invalid(nameless, ""),
		"a name of spaces":              invalid(named("  "), "metadata.name"),
		"an upper case name":            invalid(named("Upper"), "metadata.name"),
		"a name with a slash":           invalid(named("a/b"), "metadata.name"),
		"a name of dots":                invalid(named(".."), "metadata.name"),
		"a name with a percent":         invalid(named("a%2fb"), "metadata.name"),
		"a name with a null byte":       invalid(strings.Replace(k.object(k.fresh, "", ""), quoted(k.fresh), `"a\u0000b"`, 1), "metadata.name"),
		"a name with half a surrogate":  invalid(strings.Replace(k.object(k.fresh, "", ""), quoted(k.fresh), `"a\ud800"`, 1), "metadata.name"),
		"a name with invalid utf-8":     invalid(strings.Replace(k.object(k.fresh, "", ""), k.fresh, "a\xff", 1), "metadata.name"),
		"a name of 300 bytes":           invalid(named(strings.Repeat("a", 300)), "metadata.name"),
		"a label that is none":          invalid(k.object(k.fresh, `,"labels":{"a b":"c d"}`, ""), "metadata.labels"),
		"an annotation without a name":  invalid(k.object(k.fresh, `,"annotations":{"":"x"}`, ""), "metadata.annotations"),
		"an owner without a kind":       invalid(k.object(k.fresh, `,"ownerReferences":[{"name":"x"}]`, ""), "metadata.ownerReferences"),
		"two controllers":               invalid(k.object(k.fresh, `,"ownerReferences":[`+owner("a")+`,`+owner("b")+`]`, ""), "metadata.ownerReferences"),
		"a finalizer that is none":      invalid(k.object(k.fresh, `,"finalizers":["a b"]`, ""), "metadata.finalizers"),
		"a negative generation":         {request: request{method: "POST", path: k.collection + dry, body: k.object(k.fresh, `,"generation":-1`, "")}, code: 201, reason: "the server sets it"},
		"managed fields of dirt":        {request: request{method: "POST", path: k.collection + dry, body: k.object(k.fresh, `,"managedFields":[{"manager":"x","operation":"Nothing"}]`, "")}, code: 201, reason: "what cannot be read is dropped, as Kubernetes does"},
		"the object exists":             {request: request{method: "POST", path: k.collection, body: k.object(k.kept, "", "")}, code: 409, status: metav1.StatusReasonAlreadyExists},
		"a version on create":           {request: request{method: "POST", path: k.collection, body: k.object(k.fresh, `,"resourceVersion":"7"`, "")}, code: 400, status: metav1.StatusReasonBadRequest, message: "resourceVersion should not be set on objects to be created", reason: "kube-apiserver answers 500"},
		"put without a name":            put(nameless, 400, metav1.StatusReasonBadRequest),
		"put of another name":           put(k.object("other", "", ""), 400, metav1.StatusReasonBadRequest),
		"put of a missing object":       {request: request{method: "PUT", path: k.collection + "/missing", body: strings.Replace(k.object(k.kept, "", ""), quoted(k.kept), `"missing"`, 1)}, code: 404, status: metav1.StatusReasonNotFound},
		"put of an old version":         put(k.object(k.kept, `,"resourceVersion":"1"`, ""), 409, metav1.StatusReasonConflict),
		"put of a future version":       put(k.object(k.kept, `,"resourceVersion":"999999999999"`, ""), 409, metav1.StatusReasonConflict),
		"put of a version of letters":   {request: request{method: "PUT", path: k.one() + dry, body: k.object(k.kept, `,"resourceVersion":"abc"`, "")}, code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"put of a negative version":     {request: request{method: "PUT", path: k.one() + dry, body: k.object(k.kept, `,"resourceVersion":"-1"`, "")}, code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"put of another uid":            put(k.object(k.kept, `,"uid":"x"`, ""), 409, metav1.StatusReasonConflict),
		"put of another uid, versioned": put(k.object(k.kept, `,"uid":"x","resourceVersion":"{rv:`+k.one()+`}"`, ""), 409, metav1.StatusReasonConflict),
		"put of no json":                put("x", 400, metav1.StatusReasonBadRequest),
		"put of another kind":           put(strings.Replace(k.object(k.kept, "", ""), quoted(k.name), `"Status"`, 1), 400, metav1.StatusReasonBadRequest),
		"delete of another uid":         remove(`{"preconditions":{"uid":"x"}}`, 409, metav1.StatusReasonConflict),
		"delete of an old version":      remove(`{"preconditions":{"resourceVersion":"1"}}`, 409, metav1.StatusReasonConflict),
		"delete of a version of dirt":   remove(`{"preconditions":{"resourceVersion":"abc"}}`, 409, metav1.StatusReasonConflict),
		"delete with no json":           remove(`{`, 400, metav1.StatusReasonBadRequest),
		"delete with another kind":      remove(`{"apiVersion":"v1","kind":"Status"}`, 400, metav1.StatusReasonBadRequest),
		"delete with a number":          remove(`{"gracePeriodSeconds":"soon"}`, 400, metav1.StatusReasonBadRequest),
		"delete by an unknown policy":   remove(`{"propagationPolicy":"Sideways"}`, 422, metav1.StatusReasonInvalid),
		"delete by two policies":        remove(`{"propagationPolicy":"Orphan","orphanDependents":true}`, 422, metav1.StatusReasonInvalid),
		"delete in a wet run":           {request: request{method: "DELETE", path: k.one() + "?dryRun=Wet"}, code: 422, status: metav1.StatusReasonInvalid},
		"delete of a missing object":    {request: request{method: "DELETE", path: k.collection + "/missing"}, code: 404, status: metav1.StatusReasonNotFound},
		"delete, policy in the query":   {request: request{method: "DELETE", path: k.one() + "?dryRun=All&propagationPolicy=Sideways"}, code: 422, status: metav1.StatusReasonInvalid},
		"delete, number in the query":   {request: request{method: "DELETE", path: k.one() + "?dryRun=All&gracePeriodSeconds=soon"}, code: 400, status: metav1.StatusReasonBadRequest},
	}
	if k.plural != definitions.plural { // a definition's name follows from its spec
		rows["a generated name of dirt"] = invalid(strings.Replace(k.object(k.fresh, "", ""), `"name":`, `"generateName":"A_","x":`, 1), "metadata.generateName")
		rows["a generated name of dirt"] = withQuery(rows["a generated name of dirt"], "&fieldValidation=Ignore")
		rows["a generated name that is long"] = row{request: request{
			method: "POST", path: k.collection + dry, body: strings.Replace(k.object(strings.Repeat("a", 250), "", ""), `"name":`, `"generateName":`, 1),
		}, code: 201, reason: "it is cut"}
		if k.plural == namespaces.plural {
			rows["a generated name that is long"] = invalid(strings.Replace(k.object(strings.Repeat("a", 250), "", ""), `"name":`, `"generateName":`, 1), "metadata.generateName")
		}
	}
	if k.custom {
		rows["put of another kind"] = put(strings.Replace(k.object(k.kept, "", ""), quoted(k.name), `"Status"`, 1), 422, metav1.StatusReasonInvalid)
	}
	if k.namespaced {
		rows["another namespace"] = k.refused("", strings.Replace(k.object(k.fresh, "", ""), `"namespace":"hostile"`, `"namespace":"default"`, 1), "does not match the namespace")
		rows["put of another namespace"] = put(strings.Replace(k.object(k.kept, "", ""), `"namespace":"hostile"`, `"namespace":"default"`, 1), 400, metav1.StatusReasonBadRequest)
	} else {
		rows["a namespace"] = row{request: request{method: "POST", path: k.collection + dry, body: k.object(k.fresh, `,"namespace":"hostile"`, "")}, code: 201, reason: "it is cleared"}
	}
	return rows
}

func withQuery(r row, query string) row {
	r.path += query
	return r
}

func owner(name string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","name":` + quoted(name) + `,"uid":` + quoted(name) + `,"controller":true}`
}
