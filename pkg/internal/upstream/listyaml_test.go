package upstream_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// TestYAMLLists: lists as YAML are byte for byte upstream's, and are written in parts,
// the first long enough to be compressed.
func TestYAMLLists(t *testing.T) {
	t.Parallel()
	const compressed = 128 << 10
	remaining := int64(3)
	kind := metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}
	head := metav1.ListMeta{ResourceVersion: "7", Continue: "items: []\n", RemainingItemCount: &remaining}
	odd := configMaps(1, 10)
	odd[0].Data = map[string]string{
		"lines": "a\n  b\n\nc\n", "no end": "a\nb", "spaces": " a \n", "tabs": "\ta\n\tb", "item": "- a", "number": "1e3", "yes": "yes",
		"null": "~", "colon": "a: b", "comment": "# a", "crlf": "a\r\nb", "items: []": "items: []\n", "utf8": "ü\u2028\u0007", "empty": "",
		"fold": strings.Repeat("word ", 100), "quote": `'"`, "binary": "\x00", "octal": "0o7", "date": "2020-01-01",
	}
	cases := map[string]struct {
		reason string
		object runtime.Object
	}{
		"Short":    {"what is short", &corev1.ConfigMapList{TypeMeta: kind, ListMeta: head, Items: configMaps(3, 10)}},
		"Long":     {"what is long", &corev1.ConfigMapList{TypeMeta: kind, Items: configMaps(400, 1000)}},
		"NoKind":   {"an empty kind is left out", &corev1.ConfigMapList{Items: configMaps(1, 1)}},
		"Odd":      {"text that YAML has to quote", &corev1.ConfigMapList{TypeMeta: kind, Items: odd}},
		"Empty":    {"an empty list", &corev1.ConfigMapList{TypeMeta: kind, Items: []corev1.ConfigMap{}}},
		"Nil":      {"no list at all", &corev1.ConfigMapList{TypeMeta: kind}},
		"Metadata": {"lists of metadata", &metav1.PartialObjectMetadataList{Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}},
		"Object":   {"objects are upstream's", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
	}
	// Lists of every kind of Kubernetes, filled at random.
	fill := randfill.NewWithSeed(1).NilChance(0.3).NumElements(1, 3).MaxDepth(12).Funcs(
		func(*runtime.RawExtension, randfill.Continue) {}, func(*metav1.FieldsV1, randfill.Continue) {}, func(*metav1.Time, randfill.Continue) {},
		func(*metav1.MicroTime, randfill.Continue) {}, func(*metav1.TypeMeta, randfill.Continue) {},
	)
	for kind := range clientscheme.Scheme.AllKnownTypes() {
		if !strings.HasSuffix(kind.Kind, "List") || kind.Version != "v1" {
			continue
		}
		list, err := clientscheme.Scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		fill.Fill(list)
		list.GetObjectKind().SetGroupVersionKind(kind)
		cases[kind.String()] = struct {
			reason string
			object runtime.Object
		}{"a list of a kind of Kubernetes", list}
	}
	plain := serializer.NewCodecFactory(clientscheme.Scheme)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want bytes.Buffer
			if err := serializerOf(t, plain, runtime.ContentTypeYAML).Encode(c.object, &want); err != nil {
				t.Fatal(err)
			}
			var got writes
			if err := serializerOf(t, upstream.LeanLists(plain), runtime.ContentTypeYAML).Encode(c.object, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), string(bytes.Join(got, nil))); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
			if long := len(got[0]) > compressed; long != (want.Len() > compressed) {
				t.Errorf("%s: %d of %d bytes in the first write", c.reason, len(got[0]), want.Len())
			}
			if name == "Long" && len(got) < 2 {
				t.Error("it is written at once")
			}
		})
	}
}
