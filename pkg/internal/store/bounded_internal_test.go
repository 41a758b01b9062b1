package store

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
)

// TestBoundedDecodes: watches decode what was stored, but not what nests without end.
func TestBoundedDecodes(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	gv := apiextensionsv1.SchemeGroupVersion
	c := bounded{codecs.CodecForVersions(info.Serializer, info.Serializer, gv, gv), &bodies.Checker{
		TypeOf: func(schema.GroupVersionKind) reflect.Type {
			return reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()
		},
	}}
	for name, tc := range map[string]struct {
		levels  int
		decoded bool
	}{
		"as deep as decoders go": {5_000, true},
		"without an end":         {200_000, false},
	} {
		_, _, err := c.Decode([]byte(definition(tc.levels)), nil, nil)
		if (err == nil) != tc.decoded || err != nil && !strings.Contains(err.Error(), "nests deeper") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// definition is a CRD with so many levels of "not", in protobuf.
func definition(levels int) string {
	const not = 28
	heads := make([]string, levels) // from the outside in
	inner := 0
	for i := range levels {
		head := binary.AppendUvarint(binary.AppendUvarint(nil, not<<3|2), uint64(inner)) //nolint:gosec // no length is negative
		heads[levels-1-i] = string(head)
		inner += len(head)
	}
	schema := strings.Join(heads, "")
	version := wire(1, "v1") + wire(4, wire(1, schema))
	return "k8s\x00" + wire(1, wire(1, "apiextensions.k8s.io/v1")+wire(2, "CustomResourceDefinition")) + wire(2, wire(2, wire(7, version)))
}

func wire(number int, content string) string {
	b := binary.AppendUvarint(nil, uint64(number)<<3|2) //nolint:gosec // no number is negative
	return string(binary.AppendUvarint(b, uint64(len(content)))) + content
}
