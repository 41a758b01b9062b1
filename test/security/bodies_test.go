package security

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestBodies: what is small to send costs little to refuse. It is not parallel: it
// measures what the process uses.
//
//nolint:paralleltest // see above
func TestBodies(t *testing.T) {
	attack(t, serve(t), bodyAttempts())
}

const (
	yamlType     = "application/yaml"
	protobufType = "application/vnd.kubernetes.protobuf"
	strategic    = "application/strategic-merge-patch+json"
	// cpu is what one request may use: without a bound each of these takes several times
	// as much.
	cpu = time.Second
	// perValue is what a value of a custom resource with a schema may allocate, beyond
	// what its bytes may: upstream makes a validator for each.
	perValue = 8 << 10
)

// used is what the process has used: CPU time, and bytes that were allocated.
func used(tb testing.TB) (time.Duration, uint64) {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), m.TotalAlloc
}

// cheap sends a request, and fails when it costs much: each of three times, because the
// process does other things.
func (w *world) cheap(t *testing.T, r request) answer {
	t.Helper()
	// What the client allocates is counted with it.
	most := uint64(100<<20 + 10*len(r.body) + perValue*r.values)
	var a answer
	for try := range 3 {
		runtime.GC()
		cpuBefore, bytesBefore := used(t)
		answered := w.send(t, r)
		cpuAfter, bytesAfter := used(t)
		if try == 0 {
			a = answered
		}
		seconds, allocated := cpuAfter-cpuBefore, bytesAfter-bytesBefore
		t.Logf("%d: %d bytes sent, %v of CPU, %d MiB allocated", answered.code, len(r.body), seconds.Round(time.Millisecond), allocated>>20)
		if seconds <= cpu && allocated <= most {
			break
		}
		if try == 2 {
			t.Errorf("it takes %v of CPU, want at most %v, and allocates %d MiB, want at most %d", seconds, cpu, allocated>>20, most>>20)
		}
	}
	if a.code >= 400 && len(a.body) > 64<<10 {
		t.Errorf("the answer has %d bytes", len(a.body))
	}
	return a
}

// many joins what make returns for 0 to n-1.
func many(n int, separator string, item func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(item(i))
	}
	return b.String()
}

func deep(n int, open, inner, end string) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// field is a field of a message, with a length.
func field(number int, content string) string {
	b := binary.AppendUvarint(nil, uint64(number)<<3|2)
	b = binary.AppendUvarint(b, uint64(len(content)))
	return string(b) + content
}

// nested is a message that contains itself n times, in fields with numbers. It is
// made from the inside, and joined once.
func nested(n int, numbers ...int) string {
	heads := make([]string, 0, n)
	size := 0
	for i := range n {
		b := binary.AppendUvarint(nil, uint64(numbers[i%len(numbers)])<<3|2)
		b = binary.AppendUvarint(b, uint64(size))
		heads = append(heads, string(b))
		size += len(b)
	}
	var b strings.Builder
	for i := len(heads) - 1; i >= 0; i-- {
		b.WriteString(heads[i])
	}
	return b.String()
}

// envelope is an object as the API sends it in protobuf.
func envelope(version, kind, raw string) string {
	return "k8s\x00" + field(1, field(1, version)+field(2, kind)) + field(2, raw)
}

func metadata(fields string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a",` + fields + `}}`
}

// keys are members, or lines of YAML, with names of their own and in falling order.
func keys(n int, format string) string {
	return many(n, ",", func(i int) string { return fmt.Sprintf(format, n-i) })
}

// hugeKey is a certificate, and a key that belongs to nothing and is expensive to
// look at, both as PEM.
func hugeKey(t *testing.T, bits int) (certificate, key string) {
	t.Helper()
	small, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &small.PublicKey, small)
	if err != nil {
		t.Fatal(err)
	}
	number := func(bits int) *big.Int {
		n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits)))
		if err != nil {
			t.Fatal(err)
		}
		return n.SetBit(n.SetBit(n, 0, 1), bits-1, 1)
	}
	p, q := number(bits/2), number(bits/2)
	private, err := asn1.Marshal(struct {
		Version             int
		N                   *big.Int
		E                   int
		D, P, Q, Dp, Dq, Iq *big.Int
	}{0, new(big.Int).Mul(p, q), 65537, number(bits), p, q, number(bits / 2), number(bits / 2), number(bits / 2)})
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: private}))
}

// hugeRequest is a signing request with a public key and a signature of so many
// bits, as PEM.
func hugeRequest(t *testing.T, bits int) string {
	t.Helper()
	number := func(bits int) *big.Int {
		n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), uint(bits)))
		if err != nil {
			t.Fatal(err)
		}
		return n.SetBit(n.SetBit(n, 0, 1), bits-1, 1)
	}
	marshal := func(v any) asn1.RawValue {
		der, err := asn1.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return asn1.RawValue{FullBytes: der}
	}
	public := marshal(struct {
		N *big.Int
		E int
	}{number(bits), 1<<31 - 1})
	type algorithm struct {
		Algorithm  asn1.ObjectIdentifier
		Parameters asn1.RawValue
	}
	type publicKey struct {
		Algorithm algorithm
		Key       asn1.BitString
	}
	bitString := func(b []byte) asn1.BitString { return asn1.BitString{Bytes: b, BitLength: 8 * len(b)} }
	signature := new(big.Int).Rsh(number(bits), 1).FillBytes(make([]byte, bits/8))
	der := marshal(struct {
		Info struct {
			Version    int
			Subject    pkix.RDNSequence
			Key        publicKey
			Attributes []asn1.RawValue `asn1:"tag:0,set"`
		}
		Algorithm algorithm
		Signature asn1.BitString
	}{
		struct {
			Version    int
			Subject    pkix.RDNSequence
			Key        publicKey
			Attributes []asn1.RawValue `asn1:"tag:0,set"`
		}{
			0, pkix.Name{CommonName: "climber"}.ToRDNSequence(),
			publicKey{algorithm{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1}, asn1.NullRawValue}, bitString(public.FullBytes)},
			nil,
		},
		algorithm{asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 11}, asn1.NullRawValue},
		bitString(signature),
	})
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der.FullBytes}))
}

func bodyAttempts() map[string]attempt {
	all := map[string]attempt{}
	for name, r := range refusedBodies() {
		if r.method == "" {
			r.method = "POST"
		}
		all[name] = attempt{reason: "it costs more than it is worth", try: func(t *testing.T, w *world) {
			if a := w.cheap(t, r); a.code < 400 || a.code >= 500 {
				t.Errorf("%d %s", a.code, short(a.body))
			}
		}}
	}
	all["empty finalizers at once"] = attempt{reason: "eight cost eight times as much, and no more", try: func(t *testing.T, w *world) {
		r := request{as: "editor", method: "POST", path: tenant + "/configmaps", body: metadata(`"finalizers":[` + strings.TrimSuffix(strings.Repeat(`"",`, 1_000_000), ",") + `]`)}
		_, before := used(t)
		var sent sync.WaitGroup
		for range 8 {
			sent.Go(func() {
				if a, err := w.try(t.Context(), r); err != nil || a.code != http.StatusRequestEntityTooLarge {
					t.Errorf("%v %d %s", err, a.code, short(a.body))
				}
			})
		}
		sent.Wait()
		if _, after := used(t); after-before > 1<<30 {
			t.Errorf("%d MiB are allocated", (after-before)>>20)
		}
	}}
	all["key of a TLS Secret"] = attempt{reason: "a key has a size", try: func(t *testing.T, w *world) {
		certificate, key := hugeKey(t, 800_000)
		content, err := json.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]string{"name": "a"},
			"stringData": map[string]string{"tls.crt": certificate, "tls.key": key},
		})
		if err != nil {
			t.Fatal(err)
		}
		// It is stored, like other keys that no program can use, and said to be none.
		if a := w.cheap(t, request{as: admin, method: "POST", path: tenant + "/secrets?dryRun=All", body: string(content)}); a.code >= 500 {
			t.Errorf("%d %s", a.code, short(a.body))
		}
	}}
	all["key of a signing request"] = attempt{reason: "a key has a size", try: func(t *testing.T, w *world) {
		asked := base64.StdEncoding.EncodeToString([]byte(hugeRequest(t, 800_000)))
		a := w.cheap(t, request{as: "climber", method: "POST", path: "/apis/certificates.k8s.io/v1/certificatesigningrequests?dryRun=All", body: `{"apiVersion":"certificates.k8s.io/v1",` +
			`"kind":"CertificateSigningRequest","metadata":{"name":"huge"},"spec":{"signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"],"request":"` + asked + `"}}`})
		if a.code < 400 || a.code >= 500 {
			t.Errorf("%d %s", a.code, short(a.body))
		}
	}}
	all["object that grows"] = attempt{reason: "an object has the bounds of a body, however it came about", try: func(t *testing.T, w *world) {
		w.must(t, request{as: "editor", method: "POST", path: tenant + "/configmaps", body: configMap("growing", `{}`)}, http.StatusCreated)
		for round := range 8 {
			part := `{"data":{` + many(9_000, ",", func(i int) string { return fmt.Sprintf(`"k%d-%d":""`, round, i) }) + "}}"
			a := w.cheap(t, request{as: "editor", method: "PATCH", path: tenant + "/configmaps/growing", contentType: []string{strategic, merge}[round%2], body: part})
			if a.code >= 400 && a.code < 500 {
				return
			}
		}
		t.Error("it has 72,000 keys")
	}}
	return all
}

// TestHonestBodies: what programs send is within the bounds. It runs while no other test of the
// package does: what they use would count, and honest bodies are nearer to the bounds.
func TestHonestBodies(t *testing.T) {
	w := serve(t)
	maps, text := tenant+"/configmaps", strings.Repeat(`a line: of [text], with {marks}: - and \"quotes\" | >\n`, 18_000)
	endpoint := func(i int) string {
		return fmt.Sprintf(`{"addresses":["10.0.%d.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"n%d","zone":"z","targetRef":{"kind":"Pod","name":"p%d","namespace":"tenant","uid":"u%d"}}`, i/250, i%250, i, i, i)
	}
	for name, r := range map[string]request{
		"text": {method: "POST", path: maps, body: configMap("text", `{"a":"`+text+`"}`)},
		"text in YAML": {method: "POST", path: maps, contentType: yamlType, body: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: |\n" +
			strings.Repeat("    a line: of [text], with {marks}: - and \"quotes\" | > &a *a\n", 15_000) + "  b: end\n"},
		"text, applied":                {method: "PATCH", path: maps + "/applied?fieldManager=a", contentType: apply, body: configMap("applied", `{"a":"`+text+`"}`)},
		"Helm release":                 {method: "POST", path: tenant + "/secrets", body: `{"apiVersion":"v1","kind":"Secret","type":"helm.sh/release.v1","metadata":{"name":"release"},"data":{"release":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("release "), 100_000)) + `"}}`},
		"endpoints":                    {method: "POST", path: gourds, body: `{"apiVersion":"security.example.com/v1","kind":"Gourd","metadata":{"name":"endpoints"},"spec":{"endpoints":[` + many(1_000, ",", endpoint) + `]}}`},
		"custom resource":              {method: "POST", path: gourds, body: `{"apiVersion":"security.example.com/v1","kind":"Gourd","metadata":{"name":"honest"},"spec":{"a":[` + many(5_000, ",", func(i int) string { return fmt.Sprintf(`{"name":"n%d","value":%d,"on":true}`, i, i) }) + `]}}`},
		"numbers of a custom resource": {method: "POST", path: melons, values: 50_000, body: `{"apiVersion":"security.example.com/v1","kind":"Melon","metadata":{"name":"numbers"},"spec":{"numbers":[` + many(5, ",", func(int) string { return "[" + many(9_900, ",", func(i int) string { return fmt.Sprint(i) }) + "]" }) + `]}}`},
		"objects of a custom resource": {method: "POST", path: melons, values: 50_000, body: `{"apiVersion":"security.example.com/v1","kind":"Melon","metadata":{"name":"objects"},"spec":{"seeds":[` + many(4_500, ",", func(int) string { return `{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1}` }) + `]}}`},
		"list patch":                   {method: "PATCH", path: gourds + "/status", contentType: jsonp, body: `[{"op":"add","path":"/spec","value":{"a":[]}},` + many(1_000, ",", func(i int) string { return fmt.Sprintf(`{"op":"add","path":"/spec/a/-","value":{"a":%d}}`, i) }) + "]"},
		"ConfigMap of many": {method: "POST", path: maps, contentType: protobufType, body: envelope("v1", "ConfigMap", field(1, field(1, "many"))+many(5_000, "", func(i int) string {
			return field(2, field(1, fmt.Sprintf("k%d", i))+field(2, nested(30, 1)))
		}))},
	} {
		t.Run(name, func(t *testing.T) {
			r.as = admin
			if a := w.cheap(t, r); a.code != http.StatusCreated && a.code != http.StatusOK {
				t.Errorf("%d %s", a.code, short(a.body))
			}
		})
	}
}

// refusedBodies are requests that are refused.
func refusedBodies() map[string]request {
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	maps := tenant + "/configmaps"
	gourd := func(spec string) string {
		return `{"apiVersion":"security.example.com/v1","kind":"Gourd","metadata":{"name":"a"},` + spec + `}`
	}
	reversed := `"managedFields":[{"manager":"a","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{` + keys(200_000, `"f:%07d":{}`) + `}}}]`
	head := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"
	melon := func(spec string) string {
		return `{"apiVersion":"security.example.com/v1","kind":"Melon","metadata":{"name":"wrong"},` + spec + `}`
	}
	lists := func(item string) string {
		return "[" + many(5, ",", func(int) string { return "[" + many(9_900, ",", func(int) string { return item }) + "]" }) + "]"
	}
	role := func(kind string, n int, more string) string {
		list := func(format string) string { return "[" + keys(n, format) + "]" }
		return `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"cube"},"rules":[{"apiGroups":` + list(`"g%d"`) +
			`,"resources":` + list(`"r%d"`) + `,"verbs":` + list(`"v%d"`) + more + `}]}`
	}
	const policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	policy := func(validations string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"many"},"spec":{"matchConstraints":{"resourceRules":[` +
			`{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"validations":[` + validations + `]}}`
	}
	config := func(raw string) string { return envelope("v1", "ConfigMap", raw) }
	inside := field(7, field(4, field(1, nested(450_000, 28))))
	nestedCRD := envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(2, inside))
	return map[string]request{
		"bad keys":                        {as: "editor", path: maps, body: configMap("a", "{"+keys(200_000, `"!%06d":""`)+"}")},
		"bad keys, few":                   {as: "editor", path: maps, body: configMap("a", "{"+keys(9_500, `"!%06d":""`)+"}")},
		"good keys":                       {as: "editor", path: maps, body: configMap("a", "{"+keys(220_000, `"k%06d":""`)+"}")},
		"good keys, in YAML":              {as: "editor", path: maps, contentType: yamlType, body: head + "data:\n" + strings.ReplaceAll(keys(200_000, "  k%06d: \"\"\n"), ",", "")},
		"good keys, in protobuf":          {as: "editor", path: maps, contentType: protobufType, body: config(strings.ReplaceAll(many(200_000, "", func(i int) string { return field(2, field(1, fmt.Sprintf("k%06d", i))) }), ",", ""))},
		"good keys, applied":              {as: "editor", method: "PATCH", path: maps + "/a?fieldManager=a", contentType: apply, body: configMap("a", "{"+keys(220_000, `"k%06d":""`)+"}")},
		"good keys, applied in YAML":      {as: "editor", method: "PATCH", path: maps + "/a?fieldManager=a", contentType: apply, body: head + "data:\n" + strings.ReplaceAll(keys(200_000, "  k%06d: \"\"\n"), ",", "")},
		"good keys, merged":               {as: "editor", method: "PATCH", path: maps + "/open", contentType: merge, body: `{"data":{` + keys(220_000, `"k%06d":""`) + "}}"},
		"good keys, merged strategically": {as: "editor", method: "PATCH", path: maps + "/open", contentType: strategic, body: `{"data":{` + keys(220_000, `"k%06d":""`) + "}}"},
		"good keys, in a JSON patch":      {as: "editor", method: "PATCH", path: maps + "/open", contentType: jsonp, body: `[{"op":"add","path":"/data","value":{` + keys(220_000, `"k%06d":""`) + "}}]"},
		"managed fields backwards":        {as: "editor", path: maps, body: metadata(reversed)},
		"managed fields, in protobuf": {as: "editor", path: maps, contentType: protobufType, body: config(field(1, field(1, "a")+field(17,
			field(1, "a")+field(2, "Update")+field(3, "v1")+field(6, "FieldsV1")+field(7, field(1, `{"f:data":{`+keys(200_000, `"f:%07d":{}`)+"}}")))))},
		"nested definition, disguised":   {as: "definer", path: crds, contentType: protobufType + "; a=cbor", body: nestedCRD},
		"nested definition, odd numbers": {as: "definer", path: crds, contentType: protobufType, body: envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", field(1<<32|2, inside))},
		"owners":                         {as: "editor", path: maps, body: metadata(`"ownerReferences":[` + strings.TrimSuffix(strings.Repeat(`{},`, 900_000), ",") + `]`)},
		"labels":                         {as: "editor", path: maps, body: metadata(`"labels":{` + keys(200_000, `"l%06d":""`) + `}`)},
		"finalizers, in protobuf":        {as: "editor", path: maps, contentType: protobufType, body: config(field(1, strings.Repeat(field(14, ""), 1_400_000)))},
		"finalizers, in YAML":            {as: "editor", path: maps, contentType: yamlType, body: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  finalizers:\n" + strings.Repeat("  -\n", 700_000)},
		"flow of YAML":                   {as: "editor", path: maps, contentType: yamlType, body: head + "data: [" + strings.Repeat("[],", 900_000) + "]"},
		"aliases of a long string":       {as: "editor", path: maps, contentType: yamlType, body: head + "a: &a " + strings.Repeat("a", 100_000) + "\nb: [" + strings.TrimSuffix(strings.Repeat("*a,", 4_000), ",") + "]\n"},
		"nested, merged":                 {as: "editor", method: "PATCH", path: maps + "/open", contentType: merge, body: deep(9_900, `{"a":`, `"`+strings.Repeat("a", 1<<20)+`"`, "}")},
		"nested, strategic":              {as: "editor", method: "PATCH", path: maps + "/open", contentType: strategic, body: deep(9_900, `{"a":`, `"`+strings.Repeat("a", 1<<20)+`"`, "}")},
		"nested, applied":                {as: "editor", method: "PATCH", path: maps + "/open?fieldManager=a", contentType: apply, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"open"},"data":` + deep(9_900, `{"a":`, "1", "}") + "}"},
		"nested, in a JSON patch":        {as: "editor", method: "PATCH", path: maps + "/open", contentType: jsonp, body: `[{"op":"add","path":"/data","value":` + deep(9_900, `{"a":`, "1", "}") + "}]"},
		"nested custom resource":         {as: "definer", path: gourds, body: gourd(`"spec":` + deep(9_000, `{"a":`, `"`+strings.Repeat("a", 1<<20)+`"`, "}"))},
		"nested in YAML":                 {as: "definer", path: gourds, contentType: yamlType, body: "apiVersion: security.example.com/v1\nkind: Gourd\nmetadata: {name: a}\nspec: {a: " + deep(9_000, "[", "", "]") + "}\n"},
		"nested in blocks of YAML":       {as: "definer", path: gourds, contentType: yamlType, body: "apiVersion: security.example.com/v1\nkind: Gourd\nmetadata: {name: a}\nspec:\n  a:\n    " + strings.Repeat("- ", 9_000) + "a\n"},
		"nested definition":              {as: "definer", path: crds, body: definition("deepbombs", deep(4_900, `{"type":"array","items":`, `{"type":"object","description":"`+strings.Repeat("a", 1<<20)+`"}`, "}"))},
		"nested definition, binary":      {as: "definer", path: crds, contentType: protobufType, body: nestedCRD},
		"schemas of a definition":        {as: "definer", path: crds, body: definition("widebombs", `{"type":"object","properties":{`+keys(120, `"p%d":{"type":"object","properties":{`+strings.ReplaceAll(keys(100, `"p%d":{"type":"string"}`), "%", "%%")+`}}`)+`}}`)},
		"rules of a definition":          {as: "definer", path: crds, body: definition("rulebombs", `{"type":"object","x-kubernetes-validations":[`+keys(5_000, `{"rule":"self.a%d == 1"}`)+`],"properties":{`+keys(5_000, `"a%d":{"type":"integer"}`)+`}}`)},
		"values of a resource":           {as: "definer", path: gourds, body: gourd(`"spec":{"a":[` + strings.TrimSuffix(strings.Repeat("0,", 1_400_000), ",") + `]}`)},
		"wrong values":                   {as: "definer", path: melons, values: 50_000, body: melon(`"spec":{"numbers":` + lists(`"a"`) + `}`)},
		"wrong values in YAML":           {as: "definer", path: melons, contentType: yamlType, values: 50_000, body: melon(`"spec":{"numbers":` + lists(`"a"`) + `}`)},
		"wrong values, applied":          {as: "definer", method: "PATCH", path: melons + "/wrong?fieldManager=a", contentType: apply, values: 50_000, body: melon(`"spec":{"halves":` + lists(`1`) + `}`)},
		"wrong values, merged":           {as: "definer", method: "PATCH", path: melons + "/right", contentType: merge, values: 50_000, body: `{"spec":{"numbers":` + lists(`"a"`) + `}}`},
		"wrong values of keys":           {as: "definer", path: melons, values: 50_000, body: melon(`"spec":{"sizes":{` + keys(9_900, `"k%d":"long"`) + `}}`)},
		"wrong values of a status":       {as: "definer", method: "PUT", path: melons + "/right/status", values: 50_000, body: strings.Replace(melon(`"status":{"numbers":`+lists(`"a"`)+`}`), `"wrong"`, `"right"`, 1)},
		"wrong types, applied":           {as: "definer", method: "PATCH", path: melons + "/wrong?fieldManager=a", contentType: apply, values: 50_000, body: melon(`"spec":{"numbers":` + lists(`"a"`) + `}`)},
		"wrong by allOf":                 {as: "definer", path: melons, values: 50_000, body: melon(`"spec":{"halves":` + lists(`1`) + `}`)},
		"wrong by anyOf":                 {as: "definer", path: melons, values: 50_000, body: melon(`"spec":{"rests":` + lists(`1`) + `}`)},
		"required fields":                {as: "definer", path: melons, values: 50_000, body: melon(`"spec":{"seeds":[` + many(9_900, ",", func(int) string { return "{}" }) + `]}`)},
		"required fields, few":           {as: "definer", path: melons, values: 2_000, body: melon(`"spec":{"seeds":[` + many(1_950, ",", func(int) string { return "{}" }) + `]}`)},
		"wrong values, few":              {as: "definer", path: melons, values: 2_000, body: melon(`"spec":{"numbers":[[` + many(1_500, ",", func(int) string { return `"a"` }) + `]]}`)},
		"expressions of a policy":        {as: "definer", path: policies, body: policy(keys(5_000, `{"expression":"object.a%d == 1"}`))},
		"long expressions":               {as: "definer", path: policies, body: policy(keys(10, `{"expression":"%d in [`+strings.Repeat("1,", 40_000)+`1]"}`))},
		"expressions of webhooks": {as: "definer", path: "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", body: `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration",` +
			`"metadata":{"name":"many"},"webhooks":[` + keys(200, `{"name":"w%d.example.com","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":"https://example.com"},"matchConditions":[`+
			strings.ReplaceAll(keys(60, `{"name":"c%d","expression":"object.a == 1"}`), "%", "%%")+`]}`) + `]}`},
		"options of a deletion":    {as: "editor", method: "DELETE", path: maps + "/none", body: `{"apiVersion":"v1","kind":"DeleteOptions","dryRun":[` + strings.TrimSuffix(strings.Repeat(`"",`, 900_000), ",") + `]}`},
		"options, in protobuf":     {as: "editor", method: "DELETE", path: maps + "/none", contentType: protobufType, body: envelope("v1", "DeleteOptions", strings.Repeat(field(5, ""), 1_400_000))},
		"options, in YAML":         {as: "editor", method: "DELETE", path: maps + "/none", contentType: yamlType, body: "apiVersion: v1\nkind: DeleteOptions\ndryRun:\n" + strings.Repeat("-\n", 900_000)},
		"values of a status":       {as: "outside", method: "PUT", path: gourds + "/status/status", body: gourd(`"status":{"a":[` + strings.TrimSuffix(strings.Repeat("{},", 900_000), ",") + `]}`)},
		"values of a role":         {as: "chief", path: "/apis/rbac.authorization.k8s.io/v1/namespaces/tenant/roles", body: role("Role", 9_000, "")},
		"values of a cluster role": {as: "climber", path: "/apis/rbac.authorization.k8s.io/v1/clusterroles", body: role("ClusterRole", 200, `,"resourceNames":["a","b"]`)},
		"groups of a review":       {as: "editor", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"labelSelector":{"requirements":[` + strings.TrimSuffix(strings.Repeat(`{},`, 900_000), ",") + `]}}}}`},
		"CBOR":                     {as: "definer", path: gourds, contentType: "application/cbor", body: string(bytes.Repeat([]byte{0x81}, 1<<20)) + "\x00"},
	}
}
