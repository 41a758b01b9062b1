package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"
)

// shot is a request of an attack.
type shot struct {
	method, path, contentType, accept string
	token                             string // empty: that of the attacker; "-": none
	body                              []byte
	slow                              bool // the answer is read by some bytes a second
}

// fire sends a shot, and takes the answer.
func (a *army) fire(ctx context.Context, client *http.Client, s shot) {
	request, err := http.NewRequestWithContext(ctx, s.method, a.Base+s.path, bytes.NewReader(s.body))
	if err != nil {
		a.count("error")
		return
	}
	switch s.token {
	case "-":
	case "":
		request.Header.Set("Authorization", "Bearer token-of-"+attacker)
	default:
		request.Header.Set("Authorization", "Bearer "+s.token)
	}
	if s.contentType != "" {
		request.Header.Set("Content-Type", s.contentType)
	}
	if s.accept != "" {
		request.Header.Set("Accept", s.accept)
	}
	answer, err := client.Do(request)
	if err != nil {
		if ctx.Err() == nil {
			a.count(said(err))
		}
		return
	}
	a.count(fmt.Sprint(answer.StatusCode))
	if s.slow {
		trickle(ctx, answer.Body)
	} else {
		_, _ = io.Copy(io.Discard, answer.Body) // its end is of no interest
	}
	_ = answer.Body.Close()
}

// trickle reads slowly.
func trickle(ctx context.Context, body io.Reader) {
	b := make([]byte, 1024)
	for ctx.Err() == nil {
		if _, err := body.Read(b); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

const (
	inAttacker = "/api/v1/namespaces/" + attacker
	configMaps = inAttacker + "/configmaps"
	asJSON     = "application/json"
	asYAML     = "application/yaml"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	mergePatch = "application/merge-patch+json"
	definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

// object is a ConfigMap with further members, as JSON.
func object(name, metadata, members string) []byte {
	return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"` + metadata + `}` + members + `}`)
}

// many joins n times what f makes.
func many(n int, f func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(f(i))
	}
	return b.String()
}

// one makes an attack of one shot.
func one(s shot) attack { return attack{shots: func(target) []shot { return []shot{s} }} }

// attacks are all of them, by name.
func attacks() map[string]attack {
	all := map[string]attack{
		baseline: one(shot{method: "GET", path: inAttacker + "/configmaps/none"}),
		nothing: {raw: func(*army) (func(context.Context), error) {
			return func(ctx context.Context) { <-ctx.Done() }, nil
		}},
		"queries of strangers": one(shot{method: "GET", path: "/api/v1/configmaps?labelSelector=" + strings.Repeat("a%3Db,", 2_600) + "a", token: "-"}),
		"wrong tokens":         one(shot{method: "POST", path: configMaps, contentType: asJSON, token: "wrong", body: object("a", "", "")}),
		"bad keys":             one(shot{method: "POST", path: configMaps, contentType: asJSON, body: badKeys()}),
		"good keys": one(shot{method: "POST", path: configMaps, contentType: asJSON, body: object("good", "", `,"data":{`+
			many(220_000, func(i int) string { return fmt.Sprintf(`"%06x":""`, i) })+`}`)}),
		"managed fields": one(shot{method: "POST", path: configMaps, contentType: asJSON, body: object("managed", `,"managedFields":[{`+
			`"manager":"a","operation":"Update","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{`+
			many(200_000, func(i int) string { return fmt.Sprintf(`"f:%06x":{}`, 200_000-i) })+`}}}]`, "")}),
		"finalizers": one(shot{method: "POST", path: configMaps, contentType: asJSON, body: object("final", `,"finalizers":[`+
			many(1_000_000, func(int) string { return `""` })+`]`, "")}),
		"deep patches":      {shots: deepPatches},
		"large key":         one(shot{method: "POST", path: inAttacker + "/secrets", contentType: asJSON, body: largeKey()}),
		"deep definition":   one(shot{method: "POST", path: definition, contentType: asProtobuf, token: "token-of-" + definer, body: deepDefinition(100_000)}),
		"large definitions": {shots: largeDefinitions},
		"accounts":          {shots: byAccounts},
		"small creates":     {shots: smallCreates},
		"large updates":     {shots: largeUpdates},
		"lists as YAML":     {shots: lists(asYAML, false), http1: true},
		"lists as tables":   {shots: lists(asTable, false), http1: true},
		"lists read slowly": {shots: lists(asYAML, true), http1: true},
		"slow bodies":       {raw: slowBodies},
		"slow handshakes":   {raw: slowHandshakes},
		"connections":       {raw: connections},
		"long chains":       {raw: longChains},
	}
	maps.Copy(all, borrowers())
	return all
}
