package hostile

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// put is a dry update of the object that is kept.
func (k kind) put(body string, code int, status metav1.StatusReason, message string) row {
	return row{request: request{method: "PUT", path: k.one() + dry, body: body}, code: code, status: status, message: message}
}

// current is the resource version of the object that is kept, for its metadata.
func (k kind) current() string { return `,"resourceVersion":"{rv:` + k.one() + `}"` }

// invalid is a dry create that fails validation.
func (k kind) invalid(body, message string) row {
	return row{request: request{method: "POST", path: k.collection + dry, body: body}, code: 422, status: metav1.StatusReasonInvalid, message: message}
}

// with is a valid object whose spec is replaced.
func (k kind) with(spec string) string {
	k.spec, k.freshSpec = ","+spec, ""
	return k.object(k.fresh, "", "")
}

func configMapRows() map[string]row {
	k := configMaps
	return map[string]row{
		"data of numbers":           k.refused("", k.with(`"data":{"a":1}`), ""),
		"data is an array":          k.refused("", k.with(`"data":["a"]`), ""),
		"data with invalid utf-8":   {request: request{method: "POST", path: k.collection + dry, body: k.with("\"data\":{\"a\":\"\xff\"}")}, code: 201, reason: "each wrong byte becomes U+FFFD, as Kubernetes does"},
		"binary data of no base64":  k.refused("", k.with(`"binaryData":{"a":"!"}`), ""),
		"a key of slashes":          k.invalid(k.with(`"data":{"a/b":"c"}`), "data[a/b]"),
		"a key of dots":             k.invalid(k.with(`"data":{"..":"c"}`), "data[..]"),
		"a key twice":               k.invalid(k.with(`"data":{"a":"c"},"binaryData":{"a":"Yg=="}`), "duplicate of key"),
		"more than 1 MiB":           k.invalid(k.with(`"data":{"a":"`+strings.Repeat("x", 1<<20+1)+`"}`), "Too long"),
		"immutable is a number":     k.refused("", k.with(`"immutable":1`), ""),
		"immutable changes":         {request: request{method: "PUT", path: k.collection + "/frozen", body: k.object("frozen", "", "")}, code: 422, status: metav1.StatusReasonInvalid, message: "field is immutable"},
		"immutable data changes":    {request: request{method: "PATCH", path: k.collection + "/frozen", contentType: mergePatch, body: `{"data":{"a":"c"}}`}, code: 422, status: metav1.StatusReasonInvalid, message: "field is immutable"},
		"data grows by a patch":     {request: k.patch(mergePatch, "", `{"data":{"a":"`+strings.Repeat("x", 1<<20+1)+`"}}`), code: 422, status: metav1.StatusReasonInvalid},
		"strategic: data is a list": k.unreadable(k.patch(strategicPatch, "", `{"data":["a"]}`)),
		"protobuf data of dirt": {request: request{
			method: "POST", path: k.collection + dry, contentType: asProtobuf, accept: "application/json",
			body: "k8s\x00" + delimited(1, delimited(1, "v1")+delimited(2, "ConfigMap")) +
				delimited(2, delimited(1, delimited(1, "fresh"))+delimited(2, delimited(1, "a")+delimited(2, "\xff\xfe"))),
		}, code: 201, reason: "protobuf strings are not checked, as in Kubernetes"},
	}
}

func secretRows() map[string]row {
	k := secrets
	return map[string]row{
		"data of no base64":         k.refused("", k.with(`"data":{"a":"!"}`), ""),
		"data of numbers":           k.refused("", k.with(`"data":{"a":1}`), ""),
		"a key of slashes":          k.invalid(k.with(`"stringData":{"a/b":"c"}`), "data[a/b]"),
		"more than 1 MiB":           k.invalid(k.with(`"stringData":{"a":"`+strings.Repeat("x", 1<<20+1)+`"}`), "Too long"),
		"the type changes":          k.put(k.object("kept", "", `,"type":"other"`), 422, metav1.StatusReasonInvalid, "type"),
		"a token without account":   k.invalid(k.with(`"type":"kubernetes.io/service-account-token"`), "kubernetes.io/service-account.name"),
		"docker without config":     k.invalid(k.with(`"type":"kubernetes.io/dockerconfigjson"`), ".dockerconfigjson"),
		"docker config of dirt":     k.invalid(k.with(`"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"{"}`), ".dockerconfigjson"),
		"tls without a key":         k.invalid(k.with(`"type":"kubernetes.io/tls","stringData":{"tls.crt":"x"}`), "tls.key"),
		"basic auth of nothing":     k.invalid(k.with(`"type":"kubernetes.io/basic-auth"`), "username"),
		"an unknown field selected": {request: request{method: "GET", path: k.collection + "?fieldSelector=data.a%3Db"}, code: 400, status: metav1.StatusReasonBadRequest, message: "data.a"},
	}
}

func namespaceRows() map[string]row {
	k := namespaces
	return map[string]row{
		"a name with dots":              k.invalid(strings.Replace(k.object("fresh", "", ""), "fresh", "a.b", 1), "metadata.name"),
		"a name of 64 bytes":            k.invalid(strings.Replace(k.object("fresh", "", ""), "fresh", strings.Repeat("a", 64), 1), "metadata.name"),
		"finalize another name":         {request: request{method: "PUT", path: k.one() + "/finalize", body: k.object("other", "", `,"spec":{"finalizers":[]}`)}, code: 400, status: metav1.StatusReasonBadRequest},
		"finalize with a word":          {request: request{method: "PUT", path: k.one() + "/finalize" + dry, body: k.object("hostile", "", `,"spec":{"finalizers":["a b"]}`)}, code: 422, status: metav1.StatusReasonInvalid},
		"finalize a missing one":        {request: request{method: "PUT", path: k.collection + "/missing/finalize", body: k.object("missing", "", "")}, code: 404, status: metav1.StatusReasonNotFound},
		"get of finalize":               {request: request{method: "GET", path: k.one() + "/finalize"}, code: 405, status: metav1.StatusReasonMethodNotAllowed},
		"status of another name":        {request: request{method: "PUT", path: k.one() + "/status", body: k.object("other", "", "")}, code: 400, status: metav1.StatusReasonBadRequest},
		"status is a word":              k.unreadable(k.patch(mergePatch, "", `{"status":"x"}`)),
		"a collection of nowhere":       {request: request{method: "GET", path: "/api/v1/namespaces/nowhere/configmaps"}, code: 200, message: `"items":[]`},
		"objects in a name of dirt":     {request: request{method: "GET", path: "/api/v1/namespaces/%2e%2e/configmaps"}, code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"the default one is kept":       {request: request{method: "GET", path: k.collection + "/default"}, code: 200},
		"metadata.name is unchangeable": {request: k.patch(jsonPatch, "", `[{"op":"remove","path":"/metadata/name"}]`), code: 400, status: metav1.StatusReasonBadRequest},
	}
}

func melonRows() map[string]row {
	k := melons
	rows := map[string]row{
		"validation":                   k.invalid(k.with(`"spec":{"weight":-1}`), "a melon weighs something"),
		"validation on update":         k.put(k.object("kept", "", `,"spec":{"weight":-1}`), 422, metav1.StatusReasonInvalid, "a melon weighs something"),
		"validation of a patch":        {request: k.patch(mergePatch, "", `{"spec":{"weight":-1}}`), code: 422, status: metav1.StatusReasonInvalid},
		"validation of an apply":       {request: k.patch(applyPatch, "&fieldManager=x&force=true", k.object("kept", "", `,"spec":{"weight":-1}`)), code: 422, status: metav1.StatusReasonInvalid},
		"watch of a deletecollection":  {request: request{method: "DELETE", path: k.collection}, code: 405, status: metav1.StatusReasonMethodNotAllowed},
		"status of another name":       {request: request{method: "PUT", path: k.one() + "/status", body: k.object("other", "", "")}, code: 400, status: metav1.StatusReasonBadRequest},
		"delete of the status":         {request: request{method: "DELETE", path: k.one() + "/status"}, code: 405, status: metav1.StatusReasonMethodNotAllowed},
		"merge: seeds without a key":   {request: k.patch(strategicPatch, "", `{"spec":{"seeds":[{"count":1}]}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"merge: seeds of words":        {request: k.patch(strategicPatch, "", `{"spec":{"seeds":["x"]}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"merge: an unknown directive":  {request: k.patch(strategicPatch, "", `{"spec":{"seeds":[{"$patch":"burn","name":"one"}]}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"merge: a deletion of nothing": {request: k.patch(strategicPatch, "", `{"spec":{"seeds":[{"$patch":"delete"}]}}`), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
		"apply: status is a word":      {request: k.patch(applyPatch, "&fieldManager=x&force=true", k.object("kept", "", `,"status":"x"`)), code: 400, status: metav1.StatusReasonBadRequest, reason: "kube-apiserver answers 500"},
	}
	for name, spec := range map[string]string{
		"a weight out of range":   `{"weight":4294967296}`,
		"a weight of 1e400":       `{"weight":1e400}`,
		"a weight of 1.5":         `{"weight":1.5}`,
		"a weight of NaN":         `{"weight":NaN}`,
		"a weight of words":       `{"weight":"heavy"}`,
		"sweet is a word":         `{"sweet":"yes"}`,
		"sweet is a number":       `{"sweet":1}`,
		"seeds are a map":         `{"seeds":{"a":1}}`,
		"seeds are numbers":       `{"seeds":[1]}`,
		"notes are numbers":       `{"notes":{"a":1}}`,
		"spec is a list":          `[]`,
		"a count of 30 digits":    `{"seeds":[{"name":"a","count":` + strings.Repeat("9", 30) + `}]}`,
		"a count of 1 MiB digits": `{"seeds":[{"name":"a","count":` + strings.Repeat("9", 1<<20) + `}]}`,
		"a string with a newline": "{\"notes\":{\"a\":\"\n\"}}",
	} {
		rows[name] = k.refused("", k.with(`"spec":`+spec), "")
	}
	return rows
}

// serverRows are paths that no resource answers.
func serverRows() map[string]row {
	missing := func(path string) row {
		return row{request: request{method: "GET", path: path}, code: 404, status: metav1.StatusReasonNotFound}
	}
	nobody := func(path string) row {
		return row{request: request{method: "GET", path: path}, code: 404, status: noStatus, reason: "no group is asked: plain text, as in Kubernetes"}
	}
	return map[string]row{
		"an unknown group":            nobody("/apis/nobody.example.com/v1"),
		"an unknown group's object":   nobody("/apis/nobody.example.com/v1/namespaces/default/things/x"),
		"an unknown version":          missing("/apis/garden.example.com/v7/melons"),
		"an unknown core version":     missing("/api/v7/configmaps"),
		"an unknown resource":         missing("/api/v1/pods"),
		"an unknown kind in a space":  missing("/api/v1/namespaces/hostile/pods/x"),
		"a path that climbs, encoded": missing("/api/v1/namespaces/%2e%2e/%2e%2e/secrets/%2e%2e/x/y"),
		"a path of slashes":           missing("/api/v1//namespaces//hostile//configmaps//kept"),
		"a path of dirt":              nobody("/%ff%fe/%00"),
		"a path of 10 KiB":            nobody("/apis/" + strings.Repeat("a/", 5<<10)),
		"the root of nothing":         nobody("/nothing"),
		"api without a version":       {request: request{method: "POST", path: "/api/v1", body: "{}"}, code: 405, status: metav1.StatusReasonMethodNotAllowed},
		"a proxy to nowhere":          missing("/api/v1/namespaces/default/services/http:x:80/proxy/"),
		"a watch of nothing":          missing("/api/v1/watch/pods"),
		"a discovery form of dirt":    {request: request{method: "GET", path: "/apis", accept: "application/json;g=apidiscovery.k8s.io;v=v9;as=APIGroupDiscoveryList"}, code: 406, status: metav1.StatusReasonNotAcceptable},
	}
}

func gourdRows() map[string]row {
	k := gourds
	return map[string]row{
		"cel":                   k.invalid(k.with(`"spec":{"min":3,"max":2}`), "min must not exceed max"),
		"cel on update":         k.put(k.object("kept", k.current(), `,"spec":{"min":3,"max":2}`), 422, metav1.StatusReasonInvalid, "min must not exceed max"),
		"cel of a patch":        {request: k.patch(mergePatch, "", `{"spec":{"min":3}}`), code: 422, status: metav1.StatusReasonInvalid, message: "min must not exceed max"},
		"cel of an apply":       {request: k.patch(applyPatch, "&fieldManager=x&force=true", k.object("kept", "", `,"spec":{"min":3}`)), code: 422, status: metav1.StatusReasonInvalid, message: "min must not exceed max"},
		"a word for a number":   k.invalid(k.with(`"spec":{"min":"1"}`), "must be of type integer"),
		"1.5 for a number":      k.invalid(k.with(`"spec":{"min":1.5}`), "must be of type integer"),
		"2^63 for a number":     k.invalid(k.with(`"spec":{"min":9223372036854775808}`), "must be of type integer"),
		"1e400 for a number":    k.refused("", k.with(`"spec":{"min":1e400}`), ""),
		"null for a spec":       {request: request{method: "POST", path: k.collection + dry, body: k.with(`"spec":null`)}, code: 201, reason: "null is dropped where it is not nullable"},
		"a list for a spec":     k.invalid(k.with(`"spec":[]`), "must be of type object"),
		"a long list":           k.invalid(k.with(`"spec":{"list":[`+strings.TrimSuffix(strings.Repeat(`"x",`, 11), ",")+`]}`), "must have at most 10 items"),
		"a long string":         k.invalid(k.with(`"spec":{"list":["`+strings.Repeat("x", 21)+`"]}`), "Too long"),
		"no kind":               k.refused("", `{"metadata":{"name":"x"}}`, ""),
		"no metadata":           k.invalid(`{"apiVersion":"hostile.example.com/v1","kind":"Gourd"}`, "name or generateName is required"),
		"metadata is null":      {request: request{method: "POST", path: k.collection + dry, body: `{"apiVersion":"hostile.example.com/v1","kind":"Gourd","metadata":null}`}, code: 422, status: metav1.StatusReasonInvalid},
		"status of dirt":        {request: request{method: "PATCH", path: k.one() + "/status" + dry, contentType: mergePatch, body: `{"status":{"ripe":"x"}}`}, code: 422, status: metav1.StatusReasonInvalid},
		"a name as a number":    k.refused("", `{"apiVersion":"hostile.example.com/v1","kind":"Gourd","metadata":{"name":1}}`, ""),
		"deep, unknown, pruned": bounded(row{request: request{method: "POST", path: k.collection + dry + "&fieldValidation=Ignore", body: k.with(`"spec":{"x":` + nested(`{"a":`, "1", "}", 5000) + `}`)}, code: 201, reason: "deep but below the limit of the decoder"}),
	}
}

func definitionRows() map[string]row {
	k := definitions
	squash := func(schema string) string {
		return k.with(strings.TrimPrefix(definitionSpec("squashes", "Squash", schema), ","))
	}
	spec := func(properties string) string {
		return squash(`{"type":"object","properties":{"spec":` + properties + `}}`)
	}
	return map[string]row{
		"a name that does not fit":    k.invalid(strings.Replace(k.object(k.fresh, "", ""), quoted(k.fresh), `"x.hostile.example.com"`, 1), "metadata.name"),
		"no spec":                     k.invalid(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"x.y"}}`, "spec.group"),
		"no versions":                 k.invalid(k.with(`"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"squashes","kind":"Squash"},"versions":[]}`), "spec.versions"),
		"two stored versions":         k.invalid(k.with(`"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"squashes","kind":"Squash"},"versions":[`+version("v1")+`,`+version("v2")+`]}`), "spec.versions"),
		"a version twice":             k.invalid(k.with(`"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"squashes","kind":"Squash"},"versions":[`+version("v1")+`,`+version("v1")+`]}`), "spec.versions"),
		"no schema":                   k.invalid(k.with(`"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"squashes","kind":"Squash"},"versions":[{"name":"v1","served":true,"storage":true}]}`), "openAPIV3Schema: Required"),
		"a schema without a type":     k.invalid(squash(`{"properties":{"spec":{}}}`), "type: Required"),
		"a schema of a reference":     k.invalid(spec(`{"$ref":"#/definitions/x"}`), "$ref"),
		"a schema of an unknown type": k.invalid(spec(`{"type":"thing"}`), "type"),
		"a pattern that is none":      k.invalid(spec(`{"type":"string","pattern":"("}`), "pattern"),
		"a default that does not fit": k.invalid(spec(`{"type":"integer","default":"x"}`), "default"),
		"cel that does not compile":   k.invalid(spec(`{"type":"object","properties":{"a":{"type":"string"}},"x-kubernetes-validations":[{"rule":"self.b == 1"}]}`), "compilation failed"),
		"cel that is no cel":          k.invalid(spec(`{"type":"object","x-kubernetes-validations":[{"rule":"((("}]}`), "compilation failed"),
		"cel that is deep":            k.invalid(spec(`{"type":"object","x-kubernetes-validations":[{"rule":"`+nested("(", "true", ")", 1000)+`"}]}`), "compilation failed"),
		"cel that costs too much":     k.invalid(spec(`{"type":"object","properties":{"a":{"type":"array","items":{"type":"array","items":{"type":"string"}}}},"x-kubernetes-validations":[{"rule":"self.a.all(x, self.a.all(y, x.all(z, y.exists(w, w == z))))"}]}`), "exceeds budget"),
		"cel that is no truth":        k.invalid(spec(`{"type":"object","x-kubernetes-validations":[{"rule":"1 + 1"}]}`), "must evaluate to a bool"),
		"a deep schema":               bounded(k.refused("", spec(nested(`{"type":"object","properties":{"a":`, `{"type":"string"}`, "}}", 6000)), "")),
		"a group without dots":        k.invalid(strings.ReplaceAll(k.object(k.fresh, "", ""), "hostile.example.com", "hostile"), "spec.group"),
		"a scope of dirt":             k.invalid(strings.Replace(k.object(k.fresh, "", ""), `"Namespaced"`, `"Everywhere"`, 1), "spec.scope"),
		"a kind of dirt":              k.invalid(strings.Replace(k.object(k.fresh, "", ""), `"Squash"`, `"Squash/"`, 1), "spec.names.kind"),
		"a webhook of a service only": k.invalid(strings.Replace(k.object(k.fresh, "", ""), `"scope"`, `"conversion":{"strategy":"Webhook"},"scope"`, 1), "spec.conversion"),
		"the group of Kubernetes":     k.invalid(strings.ReplaceAll(k.object(k.fresh, "", ""), "hostile.example.com", "hostile.k8s.io"), "api-approved.kubernetes.io"),
		"the group cannot change":     k.put(strings.Replace(k.object(k.kept, k.current(), ""), `"group":"hostile.example.com"`, `"group":"other.example.com"`, 1), 422, metav1.StatusReasonInvalid, "spec.group"),
		"the scope cannot change":     k.put(strings.Replace(k.object(k.kept, k.current(), ""), `"Namespaced"`, `"Cluster"`, 1), 422, metav1.StatusReasonInvalid, "spec.scope"),
		"stored versions stay":        k.put(strings.Replace(k.object(k.kept, k.current(), ""), `"name":"v1"`, `"name":"v2"`, 1), 422, metav1.StatusReasonInvalid, "storedVersions"),
		"status of another name":      {request: request{method: "PUT", path: k.one() + "/status", body: k.object("other", "", "")}, code: 400, status: metav1.StatusReasonBadRequest},
		"10000 versions":              k.invalid(k.with(fmt.Sprintf(`"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"squashes","kind":"Squash"},"versions":[%s]}`, strings.TrimSuffix(strings.Repeat(version("v1")+",", 2000), ","))), "spec.versions"),
	}
}

func version(name string) string {
	return fmt.Sprintf(`{"name":%q,"served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}`, name)
}
