package hostile

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
)

var (
	serviceAccounts = kind{
		plural: "serviceaccounts", collection: "/api/v1/namespaces/hostile/serviceaccounts", apiVersion: "v1", name: "ServiceAccount",
		kept: "keyless", fresh: "fresh", namespaced: true, spec: `,"secrets":[{}]`,
	}
	deployments = kind{
		plural: "deployments", collection: "/apis/apps/v1/namespaces/hostile/deployments", apiVersion: "apps/v1", name: "Deployment",
		kept: "kept", fresh: "fresh", namespaced: true,
		spec: `,"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"a","image":"b"}]}}}`,
	}
	scaledDefinitions = kind{
		plural: definitions.plural, collection: definitions.collection, apiVersion: definitions.apiVersion, name: definitions.name,
		kept: "scaleds.hostile.example.com", fresh: "none",
		spec: strings.Replace(definitionSpec("scaleds", "Scaled", `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`),
			`"subresources":{"status":{}}`, `"subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}`, 1),
	}
	scaleds = kind{
		plural: "scaleds", collection: "/apis/hostile.example.com/v1/namespaces/hostile/scaleds",
		apiVersion: "hostile.example.com/v1", name: "Scaled", kept: "kept", fresh: "fresh", namespaced: true, spec: `,"spec":{}`, custom: true,
	}
)

// TestClientsMistakes: what a client did wrong is not a 500, as if the server had, and
// nothing is written by a request that fails.
func TestClientsMistakes(t *testing.T) {
	t.Parallel()
	w := start(t, core.ServiceAccounts{}, kube.Apps())
	d := w.doors["in-process"]
	for _, k := range []kind{serviceAccounts, deployments, scaledDefinitions, scaleds} {
		if k.plural == scaleds.plural {
			w.awaitServed(t, k.collection)
		}
		a, err := d.send(t.Context(), request{method: "POST", path: k.collection, body: k.object(k.kept, "", "")})
		if err != nil || a.code != http.StatusCreated {
			t.Fatalf("create below %s: %d %s %v", k.collection, a.code, a.body, err)
		}
	}
	for name, r := range mistakeRows() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.check(t, w, d)
		})
	}
	t.Run("nothing is created that is answered by an error", func(t *testing.T) {
		const list = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		a, err := d.send(t.Context(), request{method: "POST", path: configMaps.collection, accept: list, body: configMaps.object("unwanted", "", "")})
		if err != nil || a.code != http.StatusNotAcceptable {
			t.Errorf("%d %s %v", a.code, a.body, err)
		}
		a, err = d.send(t.Context(), request{method: "GET", path: configMaps.collection + "/unwanted"})
		if err != nil || a.code != http.StatusNotFound {
			t.Errorf("it was created: %d %s %v", a.code, a.body, err)
		}
	})
	logs.noPanic(t)
}

func mistakeRows() map[string]row {
	const (
		list   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		one    = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		either = list + ",application/json"
	)
	strategic := func(k kind, body string) request { return k.patch(strategicPatch, "", body) }
	bad := func(r request, message string) row {
		return row{request: r, code: 400, status: metav1.StatusReasonBadRequest, message: message}
	}
	forms := func(method, path, body string) row {
		r := row{request: request{method: method, path: path + dry, accept: list, body: body}, code: 406, status: metav1.StatusReasonNotAcceptable, message: "PartialObjectMetadataList"}
		if method == "PATCH" {
			r.contentType = mergePatch
		}
		return r
	}
	return map[string]row{
		"strategic: a list the type does not have":  bad(strategic(deployments, `{"spec":{"$setElementOrder/nothing":[{"name":"a"}],"nothing":[{"name":"a"}]}}`), ""),
		"strategic: an order of unknown words":      bad(strategic(deployments, `{"spec":{"$setElementOrder/nothing":["a"],"nothing":["a"]}}`), ""),
		"strategic: containers by another key":      bad(strategic(deployments, `{"spec":{"template":{"spec":{"containers":[{"image":"x"}]}}}}`), "merge key"),
		"strategic: finalizers that are objects":    bad(strategic(deployments, `{"metadata":{"$setElementOrder/finalizers":[{}],"finalizers":[{}]}}`), "in strategicpatch.mergeKeyValueEqual"),
		"json patch: a test of all without a value": bad(deployments.patch(jsonPatch, "", `[{"op":"test","path":""}]`), "in json-patch%2ev4.(*lazyNode).equal"),
		"apply: a list for a map":                   bad(deployments.patch(applyPatch, "&fieldManager=x&force=true", deployments.object("kept", `,"labels":["a"]`, "")), ""),
		"apply: replicas of words":                  bad(deployments.patch(applyPatch, "&fieldManager=x&force=true", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"kept"},"spec":{"replicas":"many"}}`), ""),
		"apply: containers without names":           {request: deployments.patch(applyPatch, "&fieldManager=x&force=true", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"kept"},"spec":{"template":{"spec":{"containers":[{"image":"a"}]}}}}`), code: 422, status: metav1.StatusReasonInvalid, message: "name"},
		"apply: a container twice":                  bad(deployments.patch(applyPatch, "&fieldManager=x&force=true", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"kept"},"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"a"}]}}}}`), ""),
		"apply: a time that is none":                bad(deployments.patch(applyPatch, "&fieldManager=x&force=true", deployments.object("kept", `,"creationTimestamp":"yesterday"`, "")), ""),
		"apply: a quantity that is none":            bad(deployments.patch(applyPatch, "&fieldManager=x&force=true", `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"kept"},"spec":{"template":{"spec":{"containers":[{"name":"a","image":"b","resources":{"limits":{"cpu":"much"}}}]}}}}`), ""),
		"apply: to secrets without keys":            bad(serviceAccounts.patch(applyPatch, "&fieldManager=x&force=true", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"keyless","labels":{"a":"b"}}}`), "secrets"),
		"get scale: no replicas":                    {request: request{method: "GET", path: scaleds.one() + "/scale"}, code: 404, status: metav1.StatusReasonNotFound, message: ".spec.replicas"},
		"put scale: no replicas":                    {request: request{method: "PUT", path: scaleds.one() + "/scale" + dry, body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"kept","namespace":"hostile"},"spec":{"replicas":2}}`}, code: 200},
		"patch scale: no replicas":                  {request: request{method: "PATCH", path: scaleds.one() + "/scale" + dry, contentType: mergePatch, body: `{"spec":{"replicas":2}}`}, code: 200},
		"create as a list":                          forms("POST", configMaps.collection, configMaps.object("fresh", "", "")),
		"create as a list, spaced":                  {request: request{method: "POST", path: configMaps.collection + dry, accept: strings.Replace(list, ";as=", "; as = ", 1), body: configMaps.object("fresh", "", "")}, code: 406, status: metav1.StatusReasonNotAcceptable},
		"update as a list":                          forms("PUT", configMaps.one(), configMaps.object("kept", "", "")),
		"patch as a list":                           forms("PATCH", configMaps.one(), `{}`),
		"delete as a list":                          forms("DELETE", configMaps.one(), ""),
		"get as a list":                             forms("GET", configMaps.one(), ""),
		"list as one":                               {request: request{method: "GET", path: configMaps.collection, accept: one}, code: 406, status: metav1.StatusReasonNotAcceptable},
		"get as a list, or so":                      {request: request{method: "GET", path: configMaps.one(), accept: either}, code: 200, message: `"data"`, reason: "the next form counts"},
		"fields to select without a schema": bad(request{method: "POST", path: definitions.collection, body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",` +
			`"metadata":{"name":"bares.hostile.example.com"},"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":"bares","kind":"Bare"},` +
			`"versions":[{"name":"v1","served":true,"storage":true,"schema":{},"selectableFields":[{"jsonPath":".spec.a"}]}]}}`}, "in cel.ValidFieldPath"),
		"custom, as a list": forms("POST", gourds.collection, gourds.object("fresh", "", "")),
	}
}
