package reflected_test

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

func TestNamer(t *testing.T) {
	t.Parallel()
	kind := spec.Extensions{"x-kubernetes-group-version-kind": "some"}
	kinds := map[string]bool{
		"com.example.fruit.v1.Apple": true, "Apple.main": true, "io.k8s.api.core.v1.Pod": true,
	}
	namer := reflected.Namer(func(name string) (string, spec.Extensions) {
		if kinds[name] {
			return name, kind
		}
		return name, nil
	})
	cases := map[string]struct {
		reason, name, want string
		kind               bool
	}{
		"ModelName":     {reason: "known to the scheme", name: "io.k8s.api.core.v1.Pod", want: "io.k8s.api.core.v1.Pod", kind: true},
		"ModelNamePart": {reason: "not turned around", name: "io.k8s.api.core.v1.PodSpec", want: "io.k8s.api.core.v1.PodSpec"},
		"GoName":        {reason: "as the scheme has it", name: "example.com/fruit/v1.Apple", want: "com.example.fruit.v1.Apple", kind: true},
		"GoNamePart":    {reason: "no slash in a $ref", name: "example.com/fruit/v1.AppleSpec", want: "com.example.fruit.v1.AppleSpec"},
		"Main":          {reason: "as the scheme has it", name: "main.Apple", want: "Apple.main", kind: true},
		"MainPart":      {reason: "needs no change", name: "main.AppleSpec", want: "main.AppleSpec"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, extensions := namer(tc.name)
			if got != tc.want || (len(extensions) > 0) != tc.kind {
				t.Errorf("%s: got %s, %v, want %s, kind %v", tc.reason, got, extensions, tc.want, tc.kind)
			}
		})
	}
}

// TestCanonicalNames holds the names against those a server asks for.
func TestCanonicalNames(t *testing.T) {
	t.Parallel()
	for _, object := range []any{&Basket{}, &known{}, renamed{}, &level0{}} {
		get, err := reflected.Build(nil, types(object))
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := get(ref)[util.GetCanonicalTypeName(object)]; !ok {
			t.Errorf("no definition %s for %s", util.GetCanonicalTypeName(object), reflect.TypeOf(object))
		}
	}
}

// level0 is named by the older of the two methods.
type level0 struct{ A string }

func (level0) OpenAPICanonicalTypeName() string { return "example.com/level.Zero" }

// outer embeds by pointer what has methods, which reflection has to call without a nil dereference.
type outer struct {
	*Described `json:",inline"`
	*Hollow    `json:",inline"`
	B          string `json:"b"`
}

// Described says what it is.
type Described struct {
	text string
	A    string `json:"a"`
}

// SwaggerDoc panics on a nil receiver.
func (d Described) SwaggerDoc() map[string]string {
	return map[string]string{"": d.text, "a": "from a part"}
}

// Hollow embeds the whole again.
type Hollow struct {
	*outer `json:"-"`
	C      string `json:"c"`
}

func TestMethodsBehindPointers(t *testing.T) {
	t.Parallel()
	get, err := reflected.Build(nil, types(outer{}))
	if err != nil {
		t.Fatal(err)
	}
	schema := get(ref)[here+"outer"].Schema
	got := map[string]string{"": schema.Description}
	for name, p := range schema.Properties {
		got[name] = p.Description
	}
	if diff := cmp.Diff(map[string]string{"": "", "a": "from a part", "b": "", "c": ""}, got); diff != "" {
		t.Errorf("descriptions (-want +got):\n%s", diff)
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		if _, err := reflected.Build(nil, types(&Basket{}, &nested{}, &known{})); err != nil {
			b.Fatal(err)
		}
	}
}
