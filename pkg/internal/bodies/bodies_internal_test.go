package bodies

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func small() Limits {
	return Limits{Depth: 6, Values: 40, Members: 10, Metadata: 3, Operations: 5}
}

// recursive is a message that contains itself, like the schemas of CRDs.
type recursive struct {
	Not      *recursive           `protobuf:"bytes,1,opt,name=not" json:"not"`
	AnyOf    []recursive          `protobuf:"bytes,2,rep,name=anyOf" json:"anyOf"`
	Named    map[string]recursive `protobuf:"bytes,3,rep,name=named" json:"named"`
	Text     string               `protobuf:"bytes,4,opt,name=text" json:"text"`
	Contents []byte               `protobuf:"bytes,5,opt,name=contents" json:"contents"`
}

func typeOf(kind schema.GroupVersionKind) reflect.Type {
	if kind.Kind == "Recursive" {
		return reflect.TypeFor[recursive]()
	}
	return scheme.Scheme.AllKnownTypes()[kind]
}

// read reads a body as upstream's handlers do, in pieces.
func read(l Limits, contentType, body string, in func(io.Reader) io.Reader) (string, error) {
	r := httptest.NewRequest(http.MethodPost, "/", in(strings.NewReader(body)))
	r.Header.Set("Content-Type", contentType)
	r.ContentLength = int64(len(body))
	(&Checker{Limits: l, TypeOf: typeOf}).Guard(r, nil)
	content, err := io.ReadAll(r.Body)
	return string(content), err
}

func field(number int, content string) string {
	b := binary.AppendUvarint(nil, uint64(number)<<3|2)
	return string(binary.AppendUvarint(b, uint64(len(content)))) + content
}

func envelope(version, kind, raw string) string {
	return prefix + field(1, field(1, version)+field(2, kind)) + field(2, raw)
}

func nested(n int, numbers ...int) string {
	raw := ""
	for i := range n {
		switch number := numbers[i%len(numbers)]; number {
		case 3:
			raw = field(3, field(1, "a")+field(2, raw))
		default:
			raw = field(number, raw)
		}
	}
	return raw
}

func listOf(n int, item string) string { return strings.TrimSuffix(strings.Repeat(item+",", n), ",") }

func objectOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `"k%d":"",`, i)
	}
	return "{" + strings.TrimSuffix(b.String(), ",") + "}"
}

// tagged nests messages so deep in the field of a tag.
func tagged(tag string, levels int) string {
	inner := ""
	for range levels {
		inner = tag + string(binary.AppendUvarint(nil, uint64(len(inner)))) + inner
	}
	return inner
}

// TestBounds: what is at a bound passes whole, what is above is refused.
func TestBounds(t *testing.T) {
	t.Parallel()
	const js, ym, pb, cb, jp = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "application/cbor", "application/json-patch+json"
	cases := map[string]struct {
		reason, contentType, body string
		refused                   string // a part of the message
	}{
		"depth":                      {"at the bound", js, strings.Repeat("[", 6) + strings.Repeat("]", 6), ""},
		"deeper":                     {"one more", js, strings.Repeat(`{"a":`, 7) + "1" + strings.Repeat("}", 7), "nests deeper"},
		"brackets in strings":        {"text does not nest", js, `{"a":"` + strings.Repeat("[", 100) + `\"` + strings.Repeat("{,:", 100) + `"}`, ""},
		"backslashes at the end":     {"an escaped backslash ends nothing", js, `{"a":"\\","b":"\\\"[[[[[[[[["}`, ""},
		"members":                    {"at the bound", js, objectOf(10), ""},
		"more members":               {"one more", js, objectOf(11), "object has more members"},
		"items":                      {"at the bound", js, "[" + listOf(10, "1") + "]", ""},
		"more items":                 {"one more", js, "[" + listOf(11, "1") + "]", "array has more items"},
		"empty array":                {"it has no item", js, "[" + listOf(10, "[]") + "]", ""},
		"values":                     {"at the bound, 4 + 36", js, "[" + listOf(4, "["+listOf(9, "1")+"]") + "]", ""},
		"more values":                {"all count", js, "[" + listOf(5, "["+listOf(9, "1")+"]") + "]", "more values"},
		"finalizers":                 {"they have a bound of their own", js, `{"metadata":{"finalizers":["a","b","c"]},"spec":{"finalizers":[1,2,3,4]}}`, ""},
		"more finalizers":            {"they have a bound of their own", js, `{"kind":"a","metadata":{"name":"a","finalizers":["a","b","c","d"]}}`, "metadata.finalizers"},
		"more labels":                {"they have a bound of their own", js, `{"metadata":{"labels":` + objectOf(4) + `}}`, "metadata.labels"},
		"operations":                 {"at the bound", jp, "[" + listOf(5, `{"op":"add","path":"/test"}`) + "]", ""},
		"more operations":            {"one more", jp, "[" + listOf(6, `{"op":"add","path":"/a"}`) + "]", "operations"},
		"YAML":                       {"blocks and flows", ym, "a:\n- b: 1\n  c: [1, 2]\n", ""},
		"YAML with many lines":       {"text has no values", ym, "a: |\n" + strings.Repeat("  b: [1, 2, {}]\n", 50), ""},
		"YAML with more members":     {"one more", ym, strings.Repeat("a: 1\n", 4) + "b: " + objectOf(11), "more members"},
		"YAML with more values":      {"all count", ym, "a:\n" + strings.Repeat("  - [1, 2, 3, 4, 5, 6]\n", 9), "more values"},
		"YAML with long aliases":     {"what they repeat counts", ym, "a: &a " + strings.Repeat("a", 1<<20) + "\nb: [*a, *a, *a, *a]\n", "aliases"},
		"YAML that repeats itself":   {"aliases of aliases count", ym, "a: &a " + strings.Repeat("a", 100_000) + "\nb: &b [*a, *a, *a, *a]\nc: &c [*b, *b, *b, *b]\nd: [*c, *c]\n", "aliases"},
		"YAML with an alias":         {"a few are well", ym, "a: &a {b: c}\nd: *a\n", ""},
		"YAML with a deep flow":      {"one more", ym, "a: " + strings.Repeat("[", 6) + strings.Repeat("]", 6), "nests deeper"},
		"YAML with deep blocks":      {"one more", ym, strings.Repeat("- ", 7) + "a", "nests deeper"},
		"YAML far to the right":      {"spaces are no depth", ym, "a:\n                    b: 1\n", ""},
		"YAML in JSON":               {"JSON is YAML", ym, `{"metadata":{"finalizers":["a","b","c","d"]}}`, "metadata.finalizers"},
		"protobuf":                   {"at the bound", pb, envelope("v1", "Recursive", nested(5, 1, 2)), ""},
		"deeper protobuf":            {"one more", pb, envelope("v1", "Recursive", nested(6, 1)), "nests deeper"},
		"deeper maps of protobuf":    {"one more", pb, envelope("v1", "Recursive", nested(6, 3, 2)), "nests deeper"},
		"text like protobuf":         {"a string is no message", pb, envelope("v1", "Recursive", field(4, nested(100, 1))+field(5, nested(100, 1))), ""},
		"protobuf with more members": {"entries of a map", pb, envelope("v1", "ConfigMap", strings.Repeat(field(2, field(1, "a")), 11)), "data"},
		"protobuf of finalizers":     {"they have a bound of their own", pb, envelope("v1", "ConfigMap", field(1, strings.Repeat(field(14, ""), 4))), "metadata.finalizers"},
		"protobuf that is merged":    {"lists of a message that is repeated are joined", pb, envelope("v1", "ConfigMap", field(1, field(14, ""))+field(1, field(14, ""))), "twice"},
		"protobuf with JSON in it":   {"managed fields are JSON", pb, envelope("v1", "ConfigMap", field(1, field(17, field(7, field(1, objectOf(11)))))), "more members"},
		"protobuf without a kind":    {"what it is decides what its fields are", pb, envelope("", "", ""), "kind"},
		"protobuf of other servers":  {"it is not looked at", pb, envelope("example.com/v1", "Any", nested(100, 1)), ""},
		"parameter of protobuf":      {"parameters do not say what a body is", pb + "; x=cbor", envelope("v1", "Recursive", nested(6, 1)), "nests deeper"},
		"parameter of JSON":          {"parameters do not say what a body is", js + ";a=protobuf", objectOf(11), "object has more members"},
		"parameter of a merge patch": {"parameters do not say what a body is", "application/merge-patch+json;a=cbor", objectOf(11), "object has more members"},
		"parameter of operations":    {"parameters do not say what a body is", jp + ";a=yaml", "[" + listOf(6, `{"op":"add","path":"/a"}`) + "]", "operations"},
		"type in capitals":           {"types have no case", " Application/YAML ; x=\"", strings.Repeat("a: 1\n", 4) + "b: " + objectOf(11), "more members"},
		"other than protobuf":        {"what is not understood is refused", pb, objectOf(1), "not protobuf"},
		"protobuf that ends early":   {"what is not understood is refused", pb, envelope("v1", "Recursive", "\x0a\x05a"), "not protobuf"},
		"number with too many bits":  {"decoders drop them", pb, envelope("v1", "Recursive", tagged("\x8a\x80\x80\x80\x80\x80\x80\x80\x80\x02", 6)), "nests deeper"},
		"number above 32 bits":       {"decoders drop them", pb, envelope("v1", "Recursive", tagged("\x8a\x80\x80\x80\x80\x01", 6)), "nests deeper"},
		"no protobuf":                {"deletions have no options", pb, "", ""},
		"groups of protobuf":         {"nothing sends them", pb, envelope("v1", "Recursive", "\x0b\x0c"), "not protobuf"},
		"CBOR":                       {"at the bound", cb, "\x8a" + strings.Repeat("\x61a", 10), ""},
		"CBOR with more items":       {"one more", cb, "\x8b" + strings.Repeat("\x00", 11), "more items"},
		"CBOR without a length":      {"one more", cb, "\x9f" + strings.Repeat("\x00", 11) + "\xff", "more items"},
		"deeper CBOR":                {"one more", cb, strings.Repeat("\x81", 7) + "\x00", "nests deeper"},
		"CBOR with tags":             {"tags nest too", cb, strings.Repeat("\xc1", 7) + "\x00", "tags"},
		"CBOR map":                   {"keys are no members", cb, "\xaa" + strings.Repeat("\x61a\x00", 10), ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for pieces, in := range map[string]func(io.Reader) io.Reader{
				"whole":   func(r io.Reader) io.Reader { return r },
				"by byte": iotest.OneByteReader,
			} {
				got, err := read(small(), tc.contentType, tc.body, in)
				switch {
				case tc.refused == "" && (err != nil || got != tc.body):
					t.Errorf("%s: %s: %q, %v", tc.reason, pieces, got, err)
				case tc.refused != "" && (err == nil || !strings.Contains(err.Error(), tc.refused)):
					t.Errorf("%s: %s: %v, want an error with %q", tc.reason, pieces, err, tc.refused)
				case tc.refused != "" && !apierrors.IsRequestEntityTooLargeError(err) && !apierrors.IsBadRequest(err):
					t.Errorf("%s: %s: %#v is no Status of a client's mistake", tc.reason, pieces, err)
				}
			}
		})
	}
}

// TestUnlimited: without bounds nothing is refused that a decoder takes.
func TestUnlimited(t *testing.T) {
	t.Parallel()
	none := Limits{Unlimited, Unlimited, Unlimited, Unlimited, Unlimited}
	for contentType, body := range map[string]string{
		"application/json":                    strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000),
		"application/yaml":                    "a: " + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000),
		"application/vnd.kubernetes.protobuf": envelope("v1", "Recursive", nested(5_000, 1)),
		"application/cbor":                    strings.Repeat("\x81", 9_000) + "\x00",
	} {
		if got, err := read(none, contentType, body, func(r io.Reader) io.Reader { return r }); err != nil || got != body {
			t.Errorf("%s: %v", contentType, err)
		}
	}
}

// TestStored: a stored object that nests without end is found before it is decoded,
// whatever the bounds of bodies are.
func TestStored(t *testing.T) {
	t.Parallel()
	c := &Checker{Limits: Limits{Unlimited, Unlimited, Unlimited, Unlimited, Unlimited}, TypeOf: typeOf}
	for name, tc := range map[string]struct {
		reason, value string
		refused       bool
	}{
		"deep":             {"as deep as JSON may be", envelope("v1", "Recursive", nested(9_000, 1)), false},
		"without an end":   {"it would overflow the stack", envelope("v1", "Recursive", nested(11_000, 1)), true},
		"not recursive":    {"other kinds cannot nest", envelope("v1", "ConfigMap", nested(11_000, 1)), false},
		"JSON":             {"its decoder looks for itself", strings.Repeat("[", 11_000), false},
		"other than known": {"it is not decoded here", envelope("example.com/v1", "Any", nested(11_000, 1)), false},
	} {
		if err := c.Stored([]byte(tc.value)); (err != nil) != tc.refused {
			t.Errorf("%s: %s: %v", name, tc.reason, err)
		}
	}
}

// FuzzJSON: JSON that the scanner lets pass is within its bounds.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,{"b":"\""}]}`, `{"a\\":"[","metadata":{"labels":{"a":"b"}}}`, "[[[[[[[1]]]]]]]"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if !json.Valid([]byte(body)) || checkJSON([]byte(body), small()) != nil {
			return
		}
		within(t, []byte(body))
	})
}

// FuzzYAML: YAML that is let pass is within the bounds, whatever its lines look like.
func FuzzYAML(f *testing.F) {
	for _, seed := range []string{
		"a: |\n  b: 1\nc: 2\n", "a: \"x\n  y: |\n  \"\nb: 1\n", "- - a: >2-\n     b\n  - 'c''d'\n", "a: [b \"c, d, \"e]\n", "a: foo\n  \"bar\nb: 1\nc: \"\n",
		"? a\n: - b\n", "\"a\" : |\n  b: 1\n", "a: &x |\n  b\n", "[&a \"b, c\", *a]", "--- |\n a: b\n", "a:\n- b\n-\n  c: d\n", "a: b #c\n  d: e\n",
	} {
		f.Add(seed)
		f.Add(strings.Repeat(seed, 12))
	}
	f.Fuzz(func(t *testing.T, body string) {
		if checkYAML([]byte(body), small()) != nil {
			return
		}
		if converted, err := yaml.YAMLToJSON([]byte(body)); err == nil {
			within(t, converted)
		}
	})
}

// within decodes JSON and counts what it has.
func within(t *testing.T, body []byte) {
	t.Helper()
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return
	}
	values, l := 0, small()
	var count func(v any, depth int)
	count = func(v any, depth int) {
		n := 0
		switch v := v.(type) {
		case map[string]any:
			n = len(v)
			for _, m := range v {
				count(m, depth+1)
			}
		case []any:
			n = len(v)
			for _, m := range v {
				count(m, depth+1)
			}
		default:
			return
		}
		values += n
		if depth > l.Depth || n > l.Members {
			t.Errorf("depth %d, %d members: %s", depth, n, body)
		}
	}
	if count(value, 1); values > l.Values {
		t.Errorf("%d values: %s", values, body)
	}
}

// BenchmarkScan compares the look at a body with its decoding.
func BenchmarkScan(b *testing.B) {
	item := `{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true},"nodeName":"node-1","targetRef":{"kind":"Pod","name":"pod-1"}},`
	for name, body := range map[string]string{
		"small":     `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","labels":{"app":"b"}},"data":{"key":"value"}}`,
		"endpoints": `{"endpoints":[` + strings.TrimSuffix(strings.Repeat(item, 1_000), ",") + `]}`,
		"text":      `{"data":{"a":"` + strings.Repeat(`a line of text, with: some marks\n`, 30_000) + `"}}`,
	} {
		l := Limits{128, 100_000, 10_000, 1_000, 2_000}
		b.Run("scan/"+name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if err := checkJSON([]byte(body), l); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("decode/"+name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				var v any
				if err := json.Unmarshal([]byte(body), &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
