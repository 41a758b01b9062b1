package hostile

import (
	"encoding/base64"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// queryRows are selectors, versions and options of reads and writes.
func queryRows(k kind) map[string]row {
	list := func(query string, code int, status metav1.StatusReason, message string) row {
		return row{request: request{method: "GET", path: k.collection + "?" + query}, code: code, status: status, message: message}
	}
	bad := func(query string) row { return list(query, 400, metav1.StatusReasonBadRequest, "") }
	invalid := func(query string) row { return list(query, 422, metav1.StatusReasonInvalid, "") }
	fine := func(query string) row { return list(query, 200, "", `"items"`) }
	escape := url.QueryEscape
	rows := map[string]row{
		"get of a missing object":        {request: request{method: "GET", path: k.collection + "/missing"}, code: 404, status: metav1.StatusReasonNotFound},
		"get of version 0":               {request: request{method: "GET", path: k.one() + "?resourceVersion=0"}, code: 200},
		"get of a version of letters":    {request: request{method: "GET", path: k.one() + "?resourceVersion=abc"}, code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"get of a future version":        {request: request{method: "GET", path: k.one() + "?resourceVersion=999999999999"}, code: 504, status: metav1.StatusReasonTimeout, message: "Too large resource version"},
		"list of a version of letters":   {request: request{method: "GET", path: k.collection + "?resourceVersion=abc"}, code: 400, status: metav1.StatusReasonBadRequest},
		"list of a negative version":     {request: request{method: "GET", path: k.collection + "?resourceVersion=-1"}, code: 400, status: metav1.StatusReasonBadRequest},
		"list of a huge version":         {request: request{method: "GET", path: k.collection + "?resourceVersion=99999999999999999999999"}, code: 400, status: metav1.StatusReasonBadRequest},
		"list of a future version":       list("resourceVersion=999999999999", 504, metav1.StatusReasonTimeout, "Too large resource version"),
		"list of exactly the future":     list("resourceVersion=999999999999&resourceVersionMatch=Exact", 504, metav1.StatusReasonTimeout, "Too large resource version"),
		"list of a version that matches": invalid("resourceVersionMatch=Exact"),
		"list of version 0, exactly":     invalid("resourceVersion=0&resourceVersionMatch=Exact"),
		"list, matching a word":          invalid("resourceVersion=1&resourceVersionMatch=Nearly"),
		"list, initial events":           invalid("sendInitialEvents=true"),
		"list, a limit of letters":       bad("limit=abc"),
		"list, a negative limit":         fine("limit=-1"),
		"list, a huge limit":             bad("limit=99999999999999999999999"),
		"list, the largest limit":        fine("limit=9223372036854775807"),
		"list, a timeout of letters":     bad("timeoutSeconds=abc"),
		"list, a token of dirt":          bad("continue=" + escape("!!!")),
		"list, a token of base64 dirt":   bad("continue=" + base64.RawURLEncoding.EncodeToString([]byte("dirt"))),
		"list, a token without version":  bad("continue=" + token(`{"v":"meta.k8s.io/v1","rv":0,"start":"x"}`)),
		"list, a token without start":    bad("continue=" + token(`{"v":"meta.k8s.io/v1","rv":1}`)),
		"list, a token of version 9":     bad("continue=" + token(`{"v":"meta.k8s.io/v9","rv":1,"start":"x"}`)),
		"list, a token that climbs":      bad("limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"../../../secrets/"}`)),
		"list, a token that steps":       bad("limit=1&continue=" + token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a/../../b"}`)),
		"list, token and version":        bad("resourceVersion=7&continue=" + token(`{"v":"meta.k8s.io/v1","rv":-1,"start":"a"}`)),
		"list, a label selector of dirt": bad("labelSelector=" + escape("a in (")),
		"list, a label selector of ===":  bad("labelSelector=" + escape("a===b")),
		"list, a label that is none":     bad("labelSelector=" + escape("a b=c")),
		"list, a long label selector":    bad("labelSelector=" + escape("a="+strings.Repeat("x", 10_000))),
		"list, a field selector of dirt": bad("fieldSelector=" + escape("metadata.name")),
		"list, an unknown field":         bad("fieldSelector=" + escape("spec.nobody=x")),
		"list, escapes in a field":       bad("fieldSelector=" + escape(`metadata.name=a\`)),
		"list, an unknown option":        fine("nobody=1&pretty=maybe"),
		"list, an option twice":          fine("limit=1&limit=abc"),
		"list, broken escapes":           fine("limit=%zz&a=;b"),
		"watch of a version of letters":  {request: request{method: "GET", path: k.collection + "?watch=1&resourceVersion=abc"}, code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"watch, initial events":          invalid("watch=1&sendInitialEvents=true"),
		"watch, a selector of dirt":      bad("watch=1&labelSelector=" + escape("a in (")),
		"watch, a timeout of letters":    bad("watch=1&timeoutSeconds=abc"),
		"watch, from a token":            {request: request{method: "GET", path: k.collection + "?watch=1&timeoutSeconds=60&continue=abc"}, code: 422, status: metav1.StatusReasonInvalid},
		"watch, from before history":     {request: request{method: "GET", path: k.collection + "?watch=1&timeoutSeconds=60&resourceVersion=1", endless: true}, code: 200, reason: "what is gone is an event: 410"},
		"watch of a missing object":      {request: request{method: "GET", path: k.collection + "?watch=1&timeoutSeconds=60&fieldSelector=metadata.name%3Dmissing", endless: true}, code: 200},
		"create in a wet run":            {request: request{method: "POST", path: k.collection + "?dryRun=Wet", body: k.object(k.fresh, "", "")}, code: 422, status: metav1.StatusReasonInvalid, message: "dryRun"},
		"create in two runs":             {request: request{method: "POST", path: k.collection + "?dryRun=All&dryRun=Wet", body: k.object(k.fresh, "", "")}, code: 422, status: metav1.StatusReasonInvalid, message: "dryRun"},
		"create by a manager of dirt":    {request: request{method: "POST", path: k.collection + "?dryRun=All&fieldManager=a%00b", body: k.object(k.fresh, "", "")}, code: 422, status: metav1.StatusReasonInvalid, message: "fieldManager"},
		"create with unknown options":    k.created("&nobody=1", k.object(k.fresh, "", "")),
		"update in a wet run":            {request: request{method: "PUT", path: k.one() + "?dryRun=Wet", body: k.object(k.kept, "", "")}, code: 422, status: metav1.StatusReasonInvalid, message: "dryRun"},
	}
	if k.many {
		remove := func(query, body string, code int, status metav1.StatusReason) row {
			return row{request: request{method: "DELETE", path: k.collection + "?dryRun=All&" + query, body: body}, code: code, status: status}
		}
		rows["delete many, a selector of dirt"] = remove("labelSelector="+escape("a in ("), "", 400, metav1.StatusReasonBadRequest)
		rows["delete many, an unknown field"] = remove("fieldSelector=spec.nobody%3Dx", "", 400, metav1.StatusReasonBadRequest)
		rows["delete many, a limit of letters"] = remove("limit=abc", "", 400, metav1.StatusReasonBadRequest)
		rows["delete many, a body of dirt"] = remove("", "{", 400, metav1.StatusReasonBadRequest)
		rows["delete many, a policy of dirt"] = remove("", `{"propagationPolicy":"Sideways"}`, 422, metav1.StatusReasonInvalid)
		rows["delete many, a version of letters"] = remove("resourceVersion=abc", "", 400, metav1.StatusReasonBadRequest)
	}
	return rows
}

func token(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

// pathRows are verbs and paths that the resource does not have.
func pathRows(k kind) map[string]row {
	missing := func(method, path string) row {
		body := ""
		if method != "GET" && method != "DELETE" {
			body = k.object(k.kept, "", "")
		}
		return row{request: request{method: method, path: path, body: body}, code: 404, status: metav1.StatusReasonNotFound}
	}
	refused := func(method, path string) row {
		r := missing(method, path)
		r.code, r.status = 405, metav1.StatusReasonMethodNotAllowed
		return r
	}
	rows := map[string]row{
		"post to an object":             refused("POST", k.one()),
		"put to a collection":           refused("PUT", k.collection),
		"patch of a collection":         refused("PATCH", k.collection),
		"a verb nobody knows":           refused("BREW", k.one()),
		"trace":                         refused("TRACE", k.one()),
		"get of an unknown part":        missing("GET", k.one()+"/nobody"),
		"put of an unknown part":        missing("PUT", k.one()+"/nobody"),
		"patch of an unknown part":      missing("PATCH", k.one()+"/nobody"),
		"delete of an unknown part":     missing("DELETE", k.one()+"/nobody"),
		"post to an unknown part":       missing("POST", k.one()+"/nobody"),
		"get of scale":                  missing("GET", k.one()+"/scale"),
		"get of a part of a part":       missing("GET", k.one()+"/status/nobody"),
		"get of an encoded slash":       missing("GET", k.collection+"/a%2Fb"),
		"get of a name of dots":         {request: request{method: "GET", path: k.collection + "/%2e%2e"}, code: 400, status: metav1.StatusReasonBadRequest, message: ".."},
		"get of a name with a percent":  {request: request{method: "GET", path: k.collection + "/a%25b"}, code: 400, status: metav1.StatusReasonBadRequest, message: "a%b"},
		"get of a name with a null":     missing("GET", k.collection+"/a%00b"),
		"get of a name that is long":    missing("GET", k.collection+"/"+strings.Repeat("a", 5000)),
		"delete of a name of dots":      {request: request{method: "DELETE", path: k.collection + "/%2e%2e"}, code: 400, status: metav1.StatusReasonBadRequest, message: ".."},
		"put of a name of dots":         {request: request{method: "PUT", path: k.collection + "/%2e%2e", body: strings.Replace(k.object(k.kept, "", ""), quoted(k.kept), `".."`, 1)}, code: 400, status: metav1.StatusReasonBadRequest},
		"get of an upper case resource": missing("GET", strings.Replace(k.collection, k.plural, strings.ToUpper(k.plural), 1)),
		"get of another version":        missing("GET", strings.Replace(k.collection, "/v1/", "/v7/", 1)),
		"watch of an old form":          {request: request{method: "POST", path: strings.Replace(k.collection, "/v1/", "/v1/watch/", 1), body: "{}"}, code: 405, status: metav1.StatusReasonMethodNotAllowed},
	}
	if k.custom { // upstream's handler of custom resources is looser
		delete(rows, "watch of an old form")
		rows["get of a part of a part"] = row{request: request{method: "GET", path: k.one() + "/status/nobody"}, code: 200}
		rows["post to an object"] = row{request: request{method: "POST", path: k.one(), body: k.object(k.kept, "", "")}, code: 409, status: metav1.StatusReasonAlreadyExists}
		rows["put to a collection"] = row{request: request{method: "PUT", path: k.collection, body: k.object(k.kept, "", "")}, code: 400, status: metav1.StatusReasonBadRequest}
		rows["patch of a collection"] = row{request: request{method: "PATCH", path: k.collection, body: "{}"}, code: 415, status: metav1.StatusReasonUnsupportedMediaType}
		rows["merge patch of a collection"] = row{request: request{method: "PATCH", path: k.collection, contentType: mergePatch, body: "{}"}, code: 400, status: metav1.StatusReasonBadRequest}
		for _, name := range []string{"get of an upper case resource", "get of another version"} {
			r := rows[name]
			r.status = noStatus
			rows[name] = r
		}
	}
	if !k.many {
		rows["delete of the collection"] = refused("DELETE", k.collection)
	}
	return rows
}
