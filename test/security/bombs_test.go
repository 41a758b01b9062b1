package security

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestBombs: what is small and gets large is refused before it is large.
func TestBombs(t *testing.T) {
	t.Parallel()
	attack(t, serve(t), bombAttempts())
}

// laughs is a billion of them, in YAML.
func laughs(head string) string {
	var b strings.Builder
	b.WriteString(head + "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n")
	for c := 'b'; c <= 'k'; c++ {
		fmt.Fprintf(&b, "%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	return b.String()
}

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	admission   = "/apis/admissionregistration.k8s.io/v1"
)

// definition is a CRD of kind Bomb with a schema of its spec.
func definition(plural, spec string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"` + plural + `.bombs.example.com"},"spec":{` +
		`"group":"bombs.example.com","scope":"Cluster","names":{"plural":"` + plural + `","kind":"Bomb` + plural + `"},"versions":[{"name":"v1","served":true,"storage":true,` +
		`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":` + spec + `}}}}]}}`
}

// costly is an expression of CEL whose cost no budget has.
const costly = `range.all(a, range.all(b, range.all(c, range.all(d, range.all(e, a + b + c + d + e >= 0)))))`

func numbers(n int) string {
	return "[" + strings.TrimSuffix(strings.Repeat("1,", n), ",") + "]"
}

func bombAttempts() map[string]attempt {
	maps := tenant + "/configmaps"
	head := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	all := map[string]attempt{}
	for name, r := range map[string]request{
		"YAML, applied":    {method: "PATCH", path: maps + "/a?fieldManager=a", contentType: apply, body: laughs(head)},
		"YAML, created":    {method: "POST", path: maps, contentType: "application/yaml", body: laughs(head)},
		"YAML in a gourd":  {method: "POST", path: gourds, contentType: "application/yaml", body: laughs("apiVersion: security.example.com/v1\nkind: Gourd\nmetadata: {name: a}\n")},
		"YAML, deep":       {method: "POST", path: maps, contentType: "application/yaml", body: head + "data: " + strings.Repeat("[", 20_000)},
		"JSON, deep":       {method: "POST", path: maps, body: `{"apiVersion":"v1","kind":"ConfigMap","data":` + strings.Repeat("[", 500_000) + strings.Repeat("]", 500_000) + "}"},
		"JSON patch, deep": {method: "PATCH", path: open, contentType: jsonp, body: `[{"op":"add","path":"/data","value":` + strings.Repeat(`{"a":`, 200_000) + "1" + strings.Repeat("}", 200_000) + "}]"},
		"merge, deep":      {method: "PATCH", path: open, contentType: merge, body: strings.Repeat(`{"a":`, 200_000) + "1" + strings.Repeat("}", 200_000)},
		"CEL over budget in a definition": {method: "POST", path: definitions, body: definition("celbombs",
			`{"type":"object","properties":{"range":{"type":"array","items":{"type":"integer"}}},"x-kubernetes-validations":[{"rule":"`+strings.ReplaceAll(costly, "range.", "self.range.")+`"}]}`)},
		"CEL in each of a list": {method: "POST", path: definitions, body: definition("listbombs",
			`{"type":"array","items":{"type":"array","items":{"type":"string","x-kubernetes-validations":[{"rule":"self.matches('^(a+)+$') && self.contains(self)"}]}}}`)},
		"definition that contains itself": {method: "POST", path: definitions, body: definition("refbombs", `{"$ref":"#"}`)},
		"definition with a default bomb": {method: "POST", path: definitions, body: definition("defaultbombs",
			`{"type":"object","default":`+strings.Repeat(`{"a":`, 50_000)+"1"+strings.Repeat("}", 50_000)+"}")},
		"numbers without end": {method: "POST", path: gourds, body: `{"apiVersion":"security.example.com/v1","kind":"Gourd","metadata":{"name":"n"},"spec":{"replicas":1e999999999}}`},
	} {
		r.as = "definer"
		all[name] = attempt{reason: "it is refused before it gets large", request: r}
	}
	all["gzip"] = attempt{reason: "bodies are not decompressed", try: func(t *testing.T, w *world) {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write(bytes.Repeat([]byte(" "), 100<<20)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		for _, encoding := range []string{"gzip", "deflate", "br", "zstd", "gzip, gzip"} {
			a := w.send(t, request{as: "definer", method: "POST", path: maps, body: b.String(), header: map[string]string{"Content-Encoding": encoding}})
			if a.code != http.StatusBadRequest && a.code != http.StatusUnsupportedMediaType {
				t.Errorf("%s: %d %s", encoding, a.code, short(a.body))
			}
		}
	}}
	all["protobuf that says it is large"] = attempt{reason: "a length is not made room for", try: func(t *testing.T, w *world) {
		for _, body := range []string{
			"k8s\x00\x0a\xff\xff\xff\xff\x07", "k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\xff\xff\xff\x7fa", "k8s\x00" + strings.Repeat("\x0a\x80", 100_000),
		} {
			a := w.send(t, request{as: "definer", method: "POST", path: maps, contentType: "application/vnd.kubernetes.protobuf", body: body})
			if a.code < 400 || a.code >= 500 {
				t.Errorf("%q: %d %s", short(body), a.code, short(a.body))
			}
		}
	}}
	all["JSON patch that doubles"] = attempt{reason: "copies have 3 MiB together", try: func(t *testing.T, w *world) {
		path := gourds + "/doubling"
		w.must(t, request{as: "definer", method: "POST", path: gourds, body: `{"apiVersion":"security.example.com/v1","kind":"Gourd","metadata":{"name":"doubling"},"spec":{"a":{"b":"` + strings.Repeat("a", 1000) + `"}}}`}, http.StatusCreated)
		for times, code := range map[int]int{3: http.StatusOK, 40: http.StatusUnprocessableEntity} {
			var b strings.Builder
			for n := range times {
				fmt.Fprintf(&b, `{"op":"copy","from":"/spec/a","path":"/spec/a/c%d"},`, n)
			}
			w.must(t, request{as: "definer", method: "PATCH", path: path + "?dryRun=All", contentType: jsonp, body: "[" + strings.TrimSuffix(b.String(), ",") + "]"}, code)
		}
	}}
	all["quantity without end"] = attempt{reason: "a quantity has a largest value, which it is", try: func(t *testing.T, w *world) {
		a := w.must(t, request{method: "POST", path: tenant + "/resourcequotas", body: `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"spec":{"hard":{"pods":"1e99999999999"}}}`}, http.StatusCreated)
		if len(a.body) > 2_000 {
			t.Errorf("%d bytes", len(a.body))
		}
	}}
	all["CEL that costs when it is run"] = attempt{reason: "the budget of a request ends the evaluation", try: func(t *testing.T, w *world) {
		w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingadmissionpolicies", body: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"bomb"},"spec":{` +
			`"failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},` +
			`"variables":[{"name":"range","expression":"` + numbers(60) + `"}],"validations":[{"expression":"` + strings.ReplaceAll(costly, "range.", "variables.range.") + `"}]}}`}, http.StatusCreated)
		w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingadmissionpolicybindings", body: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"bomb"},` +
			`"spec":{"policyName":"bomb","validationActions":["Deny"],"matchResources":{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"tenant"}}}}}`}, http.StatusCreated)
		w.refusedBy(t, "cost")
		w.must(t, request{as: "definer", method: "DELETE", path: admission + "/validatingadmissionpolicybindings/bomb"}, http.StatusOK)
		w.must(t, request{as: "definer", method: "DELETE", path: admission + "/validatingadmissionpolicies/bomb"}, http.StatusOK)
		w.await(t, request{as: "definer", method: "POST", path: maps + "?dryRun=All", body: configMap("free", "{}")}, http.StatusCreated)
	}}
	all["CEL match condition that costs"] = attempt{reason: "the budget of a match condition ends its evaluation", try: func(t *testing.T, w *world) {
		w.must(t, request{as: "definer", method: "POST", path: admission + "/validatingwebhookconfigurations", body: webhook("bomb", "https://webhook.example.com/",
			`,"matchConditions":[{"name":"bomb","expression":"`+strings.ReplaceAll(costly, "range.", numbers(30)+".")+`"}]`)}, http.StatusCreated)
		w.refusedBy(t, "cost")
		w.must(t, request{as: "definer", method: "DELETE", path: admission + "/validatingwebhookconfigurations/bomb"}, http.StatusOK)
		w.await(t, request{as: "definer", method: "POST", path: maps + "?dryRun=All", body: configMap("free", "{}")}, http.StatusCreated)
	}}
	return all
}

// refusedBy waits until a write is refused with a message.
func (w *world) refusedBy(t *testing.T, message string) answer {
	t.Helper()
	r := request{as: "definer", method: "POST", path: tenant + "/configmaps?dryRun=All", body: configMap("judged", "{}")}
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		a := w.send(t, r)
		if a.code >= 400 && strings.Contains(a.body, message) {
			return a
		}
		if time.Now().After(end) {
			t.Fatalf("it is not refused with %q: %d %s", message, a.code, short(a.body))
		}
	}
}
