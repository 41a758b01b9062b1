package reflected_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/randfill"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

// TestWireFormat fills objects at random and checks that the schemas describe what encoding/json makes of them.
func TestWireFormat(t *testing.T) {
	t.Parallel()
	roots := []any{
		&scalars{}, &known{}, &tags{}, &embeds{}, &nested{}, &merged{}, &tree{}, &Basket{},
		&metav1.ObjectMeta{}, &metav1.Status{}, &metav1.LabelSelector{}, &metav1.Condition{},
	}
	get, err := reflected.Build(nil, types(roots...))
	if err != nil {
		t.Fatal(err)
	}
	w := wire{defs: get(ref)}
	for _, root := range roots {
		name := util.GetCanonicalTypeName(root)
		t.Run(reflect.TypeOf(root).Elem().Name(), func(t *testing.T) {
			t.Parallel()
			for seed := range int64(300) {
				object := reflect.New(reflect.TypeOf(root).Elem()).Interface()
				filler(seed).Fill(object)
				data, err := json.Marshal(object)
				if err != nil {
					t.Fatal(err)
				}
				var value any
				if err := json.Unmarshal(data, &value); err != nil {
					t.Fatal(err)
				}
				if err := w.check(name, w.defs[name].Schema, value); err != nil {
					t.Fatalf("seed %d: %v in %s", seed, err, data)
				}
			}
		})
	}
}

// filler fills what has a JSON form of its own with valid values.
func filler(seed int64) *randfill.Filler {
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(6).Funcs(
		func(v *json.RawMessage, c randfill.Continue) { *v = json.RawMessage(anyJSON(c)) },
		func(v *runtime.RawExtension, c randfill.Continue) { v.Raw = []byte(`{"kind":"Some"}`) },
		func(v *metav1.FieldsV1, c randfill.Continue) { v.SetRawBytes([]byte(`{"f:spec":{}}`)) },
		func(v *json.Number, c randfill.Continue) { *v = json.Number(strconv.Itoa(int(c.Int31()))) },
		func(v *any, c randfill.Continue) { _ = json.Unmarshal([]byte(anyJSON(c)), v) },
		func(v *runtime.Object, c randfill.Continue) { *v = nil },
		func(v *netip.Addr, c randfill.Continue) { *v = netip.AddrFrom4([4]byte{127, 0, 0, byte(c.Intn(256))}) },
		func(v *resource.Quantity, c randfill.Continue) {
			*v = *resource.NewQuantity(c.Int63n(1000), resource.BinarySI)
		},
		func(v *metav1.Time, c randfill.Continue) { v.Time = time.Unix(c.Int63n(math.MaxInt32), 0) },
		func(v *metav1.MicroTime, c randfill.Continue) { v.Time = time.Unix(c.Int63n(math.MaxInt32), 0) },
		func(v *time.Time, c randfill.Continue) { *v = time.Unix(c.Int63n(math.MaxInt32), 0) },
		func(v *intstr.IntOrString, c randfill.Continue) {
			*v = intstr.FromInt32(c.Int31())
			if c.Bool() {
				*v = intstr.FromString("http")
			}
		},
	)
}

func anyJSON(c randfill.Continue) string {
	all := []string{`{"a":{"b":1}}`, `[1,"x",null]`, `"text"`, `1.5`, `true`}
	return all[c.Intn(len(all))]
}

// wire checks JSON values against definitions, more strictly than a server does: no field may be unknown.
type wire struct {
	defs map[string]common.OpenAPIDefinition
}

func (w wire) check(path string, s spec.Schema, v any) error {
	if name, ok := strings.CutPrefix(s.Ref.String(), "#/components/schemas/"); ok {
		def, ok := w.defs[name]
		if !ok {
			return fmt.Errorf("%s: no definition %q", path, name)
		}
		return w.check(path, def.Schema, v)
	}
	if v == nil {
		return nil // Go's nil, which API servers take for absent
	}
	if len(s.OneOf) > 0 {
		for _, one := range s.OneOf {
			if w.check(path, one, v) == nil {
				return nil
			}
		}
		return fmt.Errorf("%s: %v is none of %v", path, v, s.OneOf)
	}
	if len(s.Type) == 0 {
		if s.Extensions["x-kubernetes-preserve-unknown-fields"] != true {
			return fmt.Errorf("%s: an empty schema", path)
		}
		return nil
	}
	switch v := v.(type) {
	case map[string]any:
		return w.object(path, s, v)
	case []any:
		if s.Type[0] != "array" {
			return fmt.Errorf("%s: a list, want %s", path, s.Type)
		}
		for i, item := range v {
			if err := w.check(fmt.Sprintf("%s[%d]", path, i), *s.Items.Schema, item); err != nil {
				return err
			}
		}
		return nil
	default:
		return scalar(path, s, v)
	}
}

func (w wire) object(path string, s spec.Schema, v map[string]any) error {
	if s.Type[0] != "object" {
		return fmt.Errorf("%s: an object, want %s", path, s.Type)
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("%s: no %s, which is required", path, name)
		}
	}
	for name, value := range v {
		p, ok := s.Properties[name]
		switch {
		case ok:
		case s.AdditionalProperties != nil:
			p = *s.AdditionalProperties.Schema
		default:
			return fmt.Errorf("%s: unknown field %s", path, name)
		}
		if err := w.check(path+"."+name, p, value); err != nil {
			return err
		}
	}
	return nil
}

func scalar(path string, s spec.Schema, v any) error {
	var ok bool
	switch v := v.(type) {
	case string:
		ok = s.Type[0] == "string"
		if s.Format == "date-time" {
			_, err := time.Parse(time.RFC3339Nano, v)
			ok = ok && err == nil
		}
	case bool:
		ok = s.Type[0] == "boolean"
	case float64:
		ok = s.Type[0] == "number" || s.Type[0] == "integer" && v == math.Trunc(v)
	}
	if !ok {
		return fmt.Errorf("%s: %v (%T), want %s %s", path, v, v, s.Type, s.Format)
	}
	if len(s.Enum) > 0 && !slices.Contains(s.Enum, v) {
		return fmt.Errorf("%s: %v is none of %v", path, v, s.Enum)
	}
	return nil
}
