package upstream_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// writes are the parts in which something was written.
type writes [][]byte

func (w *writes) Write(b []byte) (int, error) {
	*w = append(*w, bytes.Clone(b))
	return len(b), nil
}

func TestLeanLists(t *testing.T) {
	t.Parallel()
	const compressed = 128 << 10 // more in the first write is compressed
	remaining := int64(3)
	meta := metav1.ListMeta{ResourceVersion: "7", Continue: "next", RemainingItemCount: &remaining}
	kind := metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}
	cases := map[string]struct {
		reason string
		object runtime.Object
		// writes is how many there are; 0 is any number: upstream's.
		writes int
	}{
		"Short":       {"what is short is written at once, and not compressed", &corev1.ConfigMapList{TypeMeta: kind, ListMeta: meta, Items: configMaps(3, 10)}, 1},
		"Long":        {"what is long is written in parts, the first long enough to be compressed", &corev1.ConfigMapList{TypeMeta: kind, Items: configMaps(400, 1000)}, 4},
		"LongObjects": {"a part has whole objects", &corev1.ConfigMapList{TypeMeta: kind, Items: configMaps(3, 3*compressed)}, 4},
		"NoKind":      {"an empty kind is left out", &corev1.ConfigMapList{Items: configMaps(1, 1)}, 1},
		"Empty":       {"an empty list", &corev1.ConfigMapList{TypeMeta: kind, Items: []corev1.ConfigMap{}}, 0},
		"Nil":         {"no list at all", &corev1.ConfigMapList{TypeMeta: kind}, 0},
		"Metadata": {"lists of metadata", &metav1.PartialObjectMetadataList{
			TypeMeta: kind, Items: []metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
		}, 1},
		"Raw": {"lists of anything are upstream's", &corev1.List{
			TypeMeta: kind, Items: []runtime.RawExtension{{Raw: []byte(`{"a": 1}`)}, {Object: &corev1.Pod{}}},
		}, 0},
		"Object": {"objects are upstream's", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, 0},
		"Three":  {"an object of three fields is no list", &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, 0},
	}
	plain := serializer.NewCodecFactory(clientscheme.Scheme, serializer.WithStreamingCollectionEncodingToJSON())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want bytes.Buffer
			if err := serializerOf(t, plain, runtime.ContentTypeJSON).Encode(c.object, &want); err != nil {
				t.Fatal(err)
			}
			lean := serializerOf(t, upstream.LeanLists(plain), runtime.ContentTypeJSON)
			for range 2 { // the second with the buffer of the first
				var got writes
				if err := lean.Encode(c.object, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want.String(), string(bytes.Join(got, nil))); diff != "" {
					t.Errorf("%s: -want +got:\n%s", c.reason, diff)
				}
				if c.writes > 0 && len(got) != c.writes {
					t.Errorf("%s: %d writes: want %d", c.reason, len(got), c.writes)
				}
				if long := len(got[0]) > compressed; c.writes > 0 && long != (want.Len() > compressed) {
					t.Errorf("%s: %d of %d bytes in the first write", c.reason, len(got[0]), want.Len())
				}
			}
		})
	}
}

func serializerOf(t *testing.T, s runtime.NegotiatedSerializer, mediaType string) runtime.Serializer {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(s.SupportedMediaTypes(), mediaType)
	if !ok {
		t.Fatal("no", mediaType)
	}
	return info.Serializer
}

// configMaps are a number of objects with a value of so many bytes, some of which
// JSON escapes.
func configMaps(n, size int) []corev1.ConfigMap {
	all := make([]corev1.ConfigMap, n)
	for i := range all {
		all[i].Name = fmt.Sprint("cm-", i)
		all[i].Data = map[string]string{"value": "<&>\u2028" + strings.Repeat("x", size)}
		all[i].ManagedFields = []metav1.ManagedFieldsEntry{{FieldsV1: metav1.NewFieldsV1(`{"f:data": {}}`)}}
	}
	return all
}
