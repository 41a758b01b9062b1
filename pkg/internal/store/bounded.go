package store

import (
	"bytes"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
)

// bounded encodes only objects that a client could send: patches make an object grow
// beyond what is allowed in one body. An object that is being deleted is encoded
// however large it is, so that it can be deleted. What another writer stored is decoded
// only if it does not nest without end, which would end the process; watches decode with
// it, and begin again with a list, which has a [decoder].
type bounded struct {
	runtime.Codec
	bodies *bodies.Checker
}

// Decode implements runtime.Decoder.
func (c bounded) Decode(
	value []byte, defaults *schema.GroupVersionKind, into runtime.Object,
) (runtime.Object, *schema.GroupVersionKind, error) {
	if c.bodies != nil {
		if err := c.bodies.Stored(value); err != nil {
			return nil, nil, err
		}
	}
	return c.Codec.Decode(value, defaults, into)
}

// Encode implements runtime.Encoder.
func (c bounded) Encode(obj runtime.Object, w io.Writer) error {
	if c.bodies == nil {
		return c.Codec.Encode(obj, w)
	}
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetDeletionTimestamp() != nil {
		return c.Codec.Encode(obj, w)
	}
	buffer, is := w.(*bytes.Buffer)
	if !is {
		buffer = &bytes.Buffer{}
	}
	before := buffer.Len()
	if err := c.Codec.Encode(obj, buffer); err != nil {
		return err
	}
	if err := c.bodies.Object(buffer.Bytes()[before:]); err != nil {
		return err
	}
	if is {
		return nil
	}
	_, err := w.Write(buffer.Bytes())
	return err
}
