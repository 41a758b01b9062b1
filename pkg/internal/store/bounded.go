package store

import (
	"bytes"
	"io"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sailplane-dev/sailplane/pkg/internal/bodies"
)

// bounded encodes only objects that a client could send: patches make an object grow
// beyond what is allowed in one body. An object that is being deleted is encoded
// however large it is, so that it can be deleted.
type bounded struct {
	runtime.Codec
	bodies *bodies.Checker
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
