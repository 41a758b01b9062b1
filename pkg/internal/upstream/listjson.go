package upstream

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// LeanLists returns a serializer that writes the same JSON and YAML for lists with less
// garbage; for YAML see yamlListSerializer. For JSON, upstream makes a slice of all
// objects and a buffer for each list, writes each object by itself, and keeps the first
// 128 KiB, which it compresses only if more follow, in a buffer that grows by a quarter
// at a time. A list of 100 takes 1.49 CPU s per 1,000 in place of 1.73, with 8 clients
// 1.19 in place of 1.58 (bench -only requests).
// https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/runtime/serializer/json/collections.go
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/endpoints/handlers/responsewriters/writers.go#L205
func LeanLists(s runtime.NegotiatedSerializer) runtime.NegotiatedSerializer {
	types := slices.Clone(s.SupportedMediaTypes())
	for i := range types {
		switch types[i].MediaType {
		case runtime.ContentTypeJSON:
			types[i].Serializer = &listSerializer{Serializer: types[i].Serializer}
		case runtime.ContentTypeYAML:
			types[i].Serializer = &yamlListSerializer{types[i].Serializer}
		}
	}
	return leanLists{s, types}
}

type leanLists struct {
	runtime.NegotiatedSerializer
	types []runtime.SerializerInfo
}

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (l leanLists) SupportedMediaTypes() []runtime.SerializerInfo { return l.types }

// listSerializer encodes lists of Go types itself.
type listSerializer struct {
	runtime.Serializer
	buffers sync.Pool // of *bytes.Buffer
}

const (
	// listChunk is what is written at once, or a little more. Upstream decides by the
	// size of the first write whether to compress, and this is its threshold.
	listChunk = 128 << 10
	// maxListBuffer is the largest buffer kept for the next list; objects are seldom
	// so large.
	maxListBuffer = 4 * listChunk
)

// Encode implements runtime.Encoder.
func (s *listSerializer) Encode(obj runtime.Object, w io.Writer) error {
	head, items, ok := listParts(obj)
	if !ok {
		return s.Serializer.Encode(obj, w)
	}
	buffer, ok := s.buffers.Get().(*bytes.Buffer)
	if !ok {
		buffer = &bytes.Buffer{}
	}
	buffer.Reset()
	defer func() {
		if buffer.Cap() <= maxListBuffer {
			s.buffers.Put(buffer)
		}
	}()
	encoder := json.NewEncoder(buffer)
	if err := encoder.Encode(head); err != nil {
		return err
	}
	buffer.Truncate(buffer.Len() - len("}\n"))
	before := `,"items":[`
	for i := range items.Len() {
		buffer.WriteString(before)
		before = ","
		if err := encoder.Encode(items.Index(i).Addr().Interface()); err != nil {
			return err
		}
		buffer.Truncate(buffer.Len() - len("\n"))
		if buffer.Len() > listChunk {
			if _, err := w.Write(buffer.Bytes()); err != nil {
				return err
			}
			buffer.Reset()
		}
	}
	buffer.WriteString("]}\n")
	_, err := w.Write(buffer.Bytes())
	return err
}

// listHead is what comes before the items.
type listHead struct {
	metav1.TypeMeta `json:""`

	ListMeta metav1.ListMeta `json:"metadata"`
}

// listParts splits a list of objects of a Go type. Other lists, and empty ones, are
// left to upstream.
func listParts(obj runtime.Object) (head listHead, items reflect.Value, ok bool) {
	v := reflect.ValueOf(obj)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return head, items, false
	}
	v = v.Elem()
	const fields = 3
	if v.NumField() != fields || v.Field(2).Kind() != reflect.Slice || v.Field(2).Len() == 0 {
		return head, items, false
	}
	for i, tags := range [fields][]string{{"", ",inline"}, {"metadata,omitempty"}, {"items"}} {
		tag, found := v.Type().Field(i).Tag.Lookup("json")
		if !found || !slices.Contains(tags, tag) {
			return head, items, false
		}
	}
	if _, special := obj.(json.Marshaler); special {
		return head, items, false
	}
	var isType, isList, isObject bool
	items = v.Field(2)
	head.TypeMeta, isType = v.Field(0).Interface().(metav1.TypeMeta)
	head.ListMeta, isList = v.Field(1).Interface().(metav1.ListMeta)
	_, isObject = items.Index(0).Addr().Interface().(runtime.Object)
	return head, items, isType && isList && isObject
}
