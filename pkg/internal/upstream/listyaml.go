package upstream

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// yamlListSerializer writes the same YAML for lists of Go types as upstream, object by
// object. Upstream makes JSON of the whole list, a tree of that, and the whole text:
// four times its size in memory.
// https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/runtime/serializer/json/json.go#L230
type yamlListSerializer struct{ runtime.Serializer }

// Encode implements runtime.Encoder.
func (s *yamlListSerializer) Encode(obj runtime.Object, w io.Writer) error {
	head, items, ok := listParts(obj)
	if !ok {
		return s.Serializer.Encode(obj, w)
	}
	// A list without objects, cut where they belong: YAML sorts the keys.
	const none = "items: []\n"
	empty, err := yaml.Marshal(struct {
		listHead `json:",inline"`

		Items []struct{} `json:"items"`
	}{head, []struct{}{}})
	if err != nil {
		return err
	}
	before, after, found := bytes.Cut(empty, []byte(none))
	if !found {
		return s.Serializer.Encode(obj, w)
	}
	var buffer bytes.Buffer
	buffer.Write(before)
	buffer.WriteString("items:\n")
	for i := range items.Len() {
		text, err := yamlItem(items.Index(i))
		if err != nil {
			return err
		}
		buffer.Write(text)
		if buffer.Len() > listChunk {
			if _, err := w.Write(buffer.Bytes()); err != nil {
				return err
			}
			buffer.Reset()
		}
	}
	buffer.Write(after)
	_, err = w.Write(buffer.Bytes())
	return err
}

// yamlItem is an object as it is in a list: an item of a sequence is not indented.
func yamlItem(item reflect.Value) ([]byte, error) {
	encoded, err := json.Marshal(item.Addr().Interface())
	if err != nil {
		return nil, err
	}
	sequence := make([]byte, 0, len(encoded)+len("[]"))
	sequence = append(append(append(sequence, '['), encoded...), ']')
	return yaml.JSONToYAML(sequence)
}
