package reflected_test

import (
	"encoding/json"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// colour is a string with a few values.
type colour string

const (
	red   colour = "red"
	green colour = "green"
)

// scalars has every scalar kind, always in the JSON form.
type scalars struct {
	Bool    bool          `json:"bool"`
	Int     int           `json:"int"`
	Int8    int8          `json:"int8"`
	Int16   int16         `json:"int16"`
	Int32   int32         `json:"int32"`
	Int64   int64         `json:"int64"`
	Uint    uint          `json:"uint"`
	Uint8   uint8         `json:"uint8"`
	Uint16  uint16        `json:"uint16"`
	Uint32  uint32        `json:"uint32"`
	Uint64  uint64        `json:"uint64"`
	Float32 float32       `json:"float32"`
	Float64 float64       `json:"float64"`
	String  string        `json:"string"`
	Colour  colour        `json:"colour"`
	Wait    time.Duration `json:"wait"`
	Bytes   []byte        `json:"bytes"`
}

// known has the types with a JSON form of their own.
type known struct {
	Time      metav1.Time          `json:"time"`
	Micro     metav1.MicroTime     `json:"micro"`
	Std       time.Time            `json:"std"`
	Duration  metav1.Duration      `json:"duration"`
	Port      intstr.IntOrString   `json:"port"`
	Quantity  resource.Quantity    `json:"quantity"`
	Raw       json.RawMessage      `json:"raw"`
	Extension runtime.RawExtension `json:"extension"`
	Number    json.Number          `json:"number"`
	Any       any                  `json:"any"`
	Object    runtime.Object       `json:"object"`
	Addr      netip.Addr           `json:"addr"`
	Odd       odd                  `json:"odd"`
}

// odd marshals to something its fields do not tell.
type odd struct{ A string }

func (o odd) MarshalJSON() ([]byte, error) { return json.Marshal([]string{o.A}) }

func (o *odd) UnmarshalJSON(data []byte) error {
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, s := range list {
		o.A = s
	}
	return nil
}

// tags has the json tags.
type tags struct {
	NoTag     string
	OnlyOpts  string  `json:",omitempty"`
	Hidden    string  `json:"-"`
	Dash      string  `json:"-,"`
	Omitempty int32   `json:"omitempty,omitempty"`
	Omitzero  inner   `json:"omitzero,omitzero"`
	Pointer   *string `json:"pointer"`
	Optional  *inner  `json:"optional,omitempty"`
	Quoted    int64   `json:"quoted,string"`
	NotQuoted []int64 `json:"notQuoted,string"`
	private   string
}

type inner struct {
	A string `json:"a"`
}

type second struct {
	B string `json:"b"`
}

type third struct {
	C string `json:"c"`
	A string `json:"a"`
}

type label string

// embeds has the kinds of embedding.
type embeds struct {
	inner   `json:",inline"`
	*Second `json:",inline"`
	third   `json:"third"`
	label   `json:"-"`
	Label2
	A int32 `json:"a"`
}

// Second is exported, or encoding/json could not decode into the pointer.
type Second struct {
	B string `json:"b"`
}

// Label2 is embedded, but is no struct.
type Label2 string

// nested has lists and maps in each other.
type nested struct {
	List      []string            `json:"list,omitempty"`
	Pointers  []*inner            `json:"pointers,omitempty"`
	Structs   []inner             `json:"structs,omitempty"`
	Lists     [][]int32           `json:"lists,omitempty"`
	Array     [2]bool             `json:"array,omitempty"`
	Map       map[string]inner    `json:"map,omitempty"`
	Named     map[colour]colour   `json:"named,omitempty"`
	MapOfList map[string][]second `json:"mapOfList,omitempty"`
	Times     []metav1.Time       `json:"times,omitempty"`
	Anys      map[string]any      `json:"anys,omitempty"`
	Anonymous struct {
		X int32 `json:"x"`
	} `json:"anonymous"`
	Tree *tree `json:"tree,omitempty"`
}

type tree struct {
	Children []tree           `json:"children,omitempty"`
	ByName   map[string]*tree `json:"byName,omitempty"`
}

// merged has lists that merge.
type merged struct {
	Entries  []entry        `json:"entries,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Retained []*entry       `json:"retained,omitempty" patchStrategy:"merge,retainKeys" patchMergeKey:"name"`
	Set      []string       `json:"set,omitempty" patchStrategy:"merge"`
	Replaced []string       `json:"replaced,omitempty" patchStrategy:"replace"`
	Struct   *second        `json:"struct,omitempty" patchStrategy:"retainKeys"`
	Plain    []entry        `json:"plain,omitempty"`
	Map      map[string]int `json:"map,omitempty" patchStrategy:"merge"`
}

type entry struct {
	Name  string `json:"name"`
	Port  int32  `json:"port"`
	Value string `json:"value,omitempty"`
}

// level declares its schema although it is no struct.
type level int

func (level) OpenAPISchemaType() []string   { return []string{"string"} }
func (level) OpenAPISchemaFormat() string   { return "level" }
func (level) OpenAPIV3OneOfTypes() []string { return []string{"string", "integer"} }

// defined declares its whole definition, on the pointer.
type defined struct{ X string }

func (*defined) OpenAPIDefinition() common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{
		Type: []string{"string"}, Description: "defined by hand",
	}}}
}

// definedV3 declares one for each version.
type definedV3 struct{ X string }

func (definedV3) OpenAPIDefinition() common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"string"}}}}
}

func (definedV3) OpenAPIV3Definition() common.OpenAPIDefinition {
	return common.OpenAPIDefinition{Schema: spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"number"}}}}
}

type methods struct {
	Level     level     `json:"level"`
	Defined   defined   `json:"defined"`
	DefinedV3 definedV3 `json:"definedV3"`
	Named     renamed   `json:"named"`
	Inherits  inherits  `json:"inherits"`
}

type renamed struct {
	A string `json:"a"`
}

func (renamed) OpenAPIModelName() string { return "com.example.Renamed" }

func (renamed) SwaggerDoc() map[string]string {
	return map[string]string{"": "renamed has a name.", "a": "a is a field."}
}

// inherits has methods that are about a part of it only.
type inherits struct {
	renamed `json:",inline"`
	B       string `json:"b"`
}
