package main

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"strings"
)

func badKeys() []byte {
	return object("bad", "", `,"data":{`+many(230_000, func(i int) string { return fmt.Sprintf(`"/%05x":""`, i) })+`}`)
}

// deepPatches create an object and patch it with 9,900 levels.
func deepPatches(target) []shot {
	deep := strings.Repeat(`{"a":`, 9_900) + "1" + strings.Repeat("}", 9_900)
	all := []shot{{method: "POST", path: configMaps, contentType: asJSON, body: object("deep", "", "")}}
	for _, contentType := range []string{mergePatch, "application/strategic-merge-patch+json"} {
		all = append(all, shot{method: "PATCH", path: configMaps + "/deep", contentType: contentType, body: []byte(deep)})
	}
	return all
}

// largeKey is a TLS Secret with a public key of 800,000 bits.
func largeKey() []byte {
	modulus := new(big.Int).Lsh(big.NewInt(1), 800_000)
	modulus.Add(modulus, big.NewInt(1))
	public, err := asn1.Marshal(struct {
		N *big.Int
		E int
	}{modulus, 65537})
	if err != nil {
		return nil
	}
	private, err := asn1.Marshal(struct {
		Version             int
		N                   *big.Int
		E                   int
		D, P, Q, Dp, Dq, Qi *big.Int
	}{0, modulus, 65537, modulus, modulus, modulus, modulus, modulus, modulus})
	if err != nil {
		return nil
	}
	encoded := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"large"},"type":"kubernetes.io/tls","data":{"tls.crt":"` +
		encoded("RSA PUBLIC KEY", public) + `","tls.key":"` + encoded("RSA PRIVATE KEY", private) + `"}}`)
}

// field encodes a length-delimited field of protobuf.
func field(number uint64, content []byte) []byte {
	b := binary.AppendUvarint(nil, number<<3|2)
	return append(binary.AppendUvarint(b, uint64(len(content))), content...)
}

// deepDefinition is a CRD whose schema has so many levels of "not", as protobuf.
func deepDefinition(levels int) []byte {
	// The lengths from the inside out, so that each level is written once.
	const not = 28 // of JSONSchemaProps
	heads := make([][]byte, levels)
	inner := 0
	for i := range levels {
		h := binary.AppendUvarint(binary.AppendUvarint(nil, not<<3|2), uint64(inner))
		heads[levels-1-i] = h
		inner += len(h)
	}
	validation := field(1, bytes.Join(heads, nil))                          // openAPIV3Schema
	version := append(field(1, []byte("v1")), 2<<3, 1, 3<<3, 1)             // name, served, storage
	version = append(version, field(4, validation)...)                      // schema
	names := append(field(1, []byte("deeps")), field(4, []byte("Deep"))...) // plural, kind
	spec := append(field(1, []byte("siege.example.com")), field(3, names)...)
	spec = append(append(spec, field(4, []byte("Cluster"))...), field(7, version)...)
	raw := append(field(1, field(1, []byte("deeps.siege.example.com"))), field(2, spec)...)
	kind := append(field(1, []byte("apiextensions.k8s.io/v1")), field(2, []byte("CustomResourceDefinition"))...)
	return append([]byte("k8s\x00"), append(field(1, kind), field(2, raw)...)...)
}

// largeDefinitions are 40 CRDs of some 440 KB.
func largeDefinitions(target) []shot {
	var all []shot
	for n := range 40 {
		properties := many(2_200, func(i int) string {
			return fmt.Sprintf(`"field%04d":{"type":"object","description":%q,"properties":{"a":{"type":"string"},"b":{"type":"integer","minimum":0}}}`,
				i, strings.Repeat("what it is for ", 5))
		})
		body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"larges%d.siege.example.com"},`+
			`"spec":{"group":"siege.example.com","scope":"Cluster","names":{"plural":"larges%d","kind":"Large%d"},"versions":[{"name":"v1","served":true,"storage":true,`+
			`"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{%s}}}}}}]}}`, n, n, n, properties)
		all = append(all, shot{method: "POST", path: definition, contentType: asJSON, token: "token-of-" + definer, body: []byte(body)})
	}
	return all
}

// random is text that does not compress.
func random(size int) string {
	b := make([]byte, size*3/4)
	_, _ = rand.Read(b) // never fails
	return base64.StdEncoding.EncodeToString(b)
}

func withData(name, value string) []byte {
	quoted, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return object(name, "", `,"data":{"a":`+string(quoted)+`}`)
}

// largeUpdates create four objects of 1 MiB and update them over and over.
func largeUpdates(target) []shot {
	const size = 1000 << 10
	var all []shot
	for i := range 4 {
		all = append(all, shot{method: "POST", path: configMaps, contentType: asJSON, body: withData(fmt.Sprint("large-", i), random(size))})
	}
	for i := range 32 {
		name := fmt.Sprint("large-", i%4)
		all = append(all, shot{method: "PUT", path: configMaps + "/" + name, contentType: asJSON, body: withData(name, random(size))})
	}
	return all
}

// smallCreates fill the namespace.
func smallCreates(target) []shot {
	return []shot{{method: "POST", path: configMaps, contentType: asJSON, body: []byte(
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"small-"},"data":{"a":"b"}}`)}}
}

// byAccounts spread small creates over the accounts of one namespace.
func byAccounts(t target) []shot {
	var all []shot
	for _, token := range t.Accounts {
		s := smallCreates(t)[0]
		s.token = token
		all = append(all, s)
	}
	return all
}

// lists create 60 MB of objects, and then list them.
func lists(accept string, slow bool) func(target) []shot {
	return func(target) []shot {
		const objects, size = 60, 1000 << 10
		var all []shot
		for i := range objects {
			all = append(all, shot{method: "POST", path: configMaps, contentType: asJSON, body: withData(fmt.Sprint("listed-", i), random(size))})
		}
		for range objects * 100 {
			all = append(all, shot{method: "GET", path: configMaps, accept: accept, slow: slow})
		}
		return all
	}
}
