package upstream_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/util/apihelpers"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// TestListForms: lists and tables are byte for byte upstream's in every form, and are
// written in parts, the first long enough to be compressed.
func TestListForms(t *testing.T) {
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
		"Table": {"a table", table(
			metav1.TableRow{Cells: []any{"a", int64(1), 1.5, nil, true, "<&>\u2028"}, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: odd[0].ObjectMeta,
			}}},
			metav1.TableRow{Cells: []any{"b"}, Object: runtime.RawExtension{Object: &odd[0]}},
			metav1.TableRow{Cells: []any{"c"}, Object: runtime.RawExtension{Raw: []byte(`{"a": [ 1 ]}`)}},
			metav1.TableRow{Cells: []any{}, Conditions: []metav1.TableRowCondition{{Type: metav1.RowCompleted, Status: metav1.ConditionTrue}}},
		)},
		"EmptyTable": {"a table without rows", table()},
		"NilTable":   {"no table at all", &metav1.Table{}},
		"LongTable":  {"a long table", table(longRows(400)...)},
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
			for i, of := range forms(t, plain) {
				var want bytes.Buffer
				if err := of.Encode(c.object, &want); err != nil {
					t.Fatal(err)
				}
				var got writes
				if err := forms(t, upstream.LeanLists(plain))[i].Encode(c.object, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.String(), string(bytes.Join(got, nil))); diff != "" {
					t.Errorf("%s: -want +got:\n%s", c.reason, diff)
				}
				if long := len(got[0]) > compressed; long != (want.Len() > compressed) {
					t.Errorf("%s: %d of %d bytes in the first write", c.reason, len(got[0]), want.Len())
				}
				if strings.HasPrefix(name, "Long") && len(got) < 2 {
					t.Error("it is written at once")
				}
			}
		})
	}
}

// forms are the serializers for JSON, indented JSON and YAML.
func forms(t *testing.T, s runtime.NegotiatedSerializer) []runtime.Serializer {
	t.Helper()
	for _, info := range s.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			return []runtime.Serializer{info.Serializer, info.PrettySerializer, serializerOf(t, s, runtime.ContentTypeYAML)}
		}
	}
	t.Fatal("no JSON")
	return nil
}

// table has a column whose description looks like what comes after it.
func table(rows ...metav1.TableRow) *metav1.Table {
	return &metav1.Table{
		TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		ColumnDefinitions: []metav1.TableColumnDefinition{{
			Name: "Name", Type: "string", Description: "a\nrows: []\n\n  \"rows\": []\n\"rows\":[]\n",
		}},
		Rows: rows,
	}
}

func longRows(n int) []metav1.TableRow {
	rows := make([]metav1.TableRow, n)
	for i, object := range configMaps(n, 1) {
		object.Annotations = map[string]string{"long": strings.Repeat("x", 1000)}
		rows[i] = metav1.TableRow{Cells: []any{object.Name}, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: object.ObjectMeta}}}
	}
	return rows
}

// TestLeanTables: the tables of every server of the process are written in parts.
func TestLeanTables(t *testing.T) {
	t.Parallel()
	upstream.LeanTables()
	upstream.LeanTables() // a second time changes nothing
	object := table(longRows(400)...)
	for i, of := range forms(t, apihelpers.GetMetaInternalVersionCodecs()) {
		var want bytes.Buffer
		if err := forms(t, serializer.NewCodecFactory(metainternalscheme.Scheme))[i].Encode(object, &want); err != nil {
			t.Fatal(err)
		}
		var got writes
		if err := of.Encode(object, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want.String(), string(bytes.Join(got, nil))); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if len(got) < 2 {
			t.Error("it is written at once")
		}
	}
}
