package store

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// transformer returns the transformer of a resource.
func (b *Backend) transformer(resource schema.GroupResource) value.Transformer {
	var t value.Transformer
	if b.Transformers != nil {
		t = b.Transformers.TransformerForResource(resource)
	} else {
		t = identity.NewEncryptCheckTransformer()
	}
	return &transformer{Transformer: t, resource: resource}
}

// transformer names the resource in errors, which upstream's do not.
type transformer struct {
	value.Transformer
	resource schema.GroupResource
}

// TransformFromStorage implements value.Transformer.
func (t *transformer) TransformFromStorage(ctx context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	if revision.DamageOf(data) != nil {
		return data, false, nil //nolint:nilerr // the decoder says so
	}
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, key)
	if err != nil {
		return nil, false, fmt.Errorf("decrypt %s %s: %w: check that the encryption configuration has the key that encrypted it",
			t.resource, key.AuthenticatedData(), err)
	}
	return out, stale, nil
}

// TransformToStorage implements value.Transformer.
func (t *transformer) TransformToStorage(ctx context.Context, data []byte, key value.Context) ([]byte, error) {
	out, err := t.Transformer.TransformToStorage(ctx, data, key)
	if err != nil {
		return nil, fmt.Errorf("encrypt %s %s: %w", t.resource, key.AuthenticatedData(), err)
	}
	return out, nil
}

// sizing notes how large the objects are that are written and read.
type sizing struct {
	value.Transformer
	sizes *sizes
}

// TransformFromStorage implements value.Transformer.
func (t sizing) TransformFromStorage(ctx context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, key)
	t.sizes.see(len(out))
	return out, stale, err
}

// TransformToStorage implements value.Transformer.
func (t sizing) TransformToStorage(ctx context.Context, data []byte, key value.Context) ([]byte, error) {
	t.sizes.see(len(data))
	return t.Transformer.TransformToStorage(ctx, data, key)
}
