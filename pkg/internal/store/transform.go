package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// transformer is that of a resource.
func (b *Backend) transformer(resource schema.GroupResource) value.Transformer {
	var t value.Transformer
	if b.Transformers != nil {
		t = b.Transformers.TransformerForResource(resource)
	} else {
		t = identity.NewEncryptCheckTransformer()
	}
	return &transformer{Transformer: t, resource: resource, failed: make(chan struct{})}
}

// transformer has errors name the resource, which upstream's do not, and notes
// the first one.
type transformer struct {
	value.Transformer
	resource schema.GroupResource
	once     sync.Once
	failed   chan struct{}
}

// TransformFromStorage implements value.Transformer.
func (t *transformer) TransformFromStorage(ctx context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	if revision.DamageOf(data) != nil {
		return data, false, nil //nolint:nilerr // the decoder says so
	}
	out, stale, err := t.Transformer.TransformFromStorage(ctx, data, key)
	if err != nil {
		if ctx.Err() == nil {
			t.once.Do(func() { close(t.failed) })
		}
		return nil, false, fmt.Errorf("decrypt %s %s: %w: is the key or provider that encrypted it in the encryption configuration?",
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

// tracked is what is known of a store with a watch cache.
type tracked struct {
	resource schema.GroupResource
	// unreadable is closed when a value of the resource could not be read.
	unreadable <-chan struct{}
	held       *held
}

func trackedOf(config *storagebackend.ConfigForResource, h *held) tracked {
	tr := tracked{resource: config.GroupResource, held: h}
	if t, ok := config.Transformer.(*transformer); ok {
		tr.unreadable = t.failed
	}
	return tr
}

// undecryptableError ends the wait for a cache that cannot be filled.
type undecryptableError struct{}

func (undecryptableError) Error() string { return "a stored value cannot be decrypted" }

// heldBackError ends the wait for a cache that nobody needs yet.
type heldBackError struct{}

func (heldBackError) Error() string { return "the watch cache is filled later" }

// await waits until the cache is filled, unless that cannot be or is for later.
func (t tracked) await(ctx context.Context, c *cacher.Cacher) error {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-t.unreadable:
			cancel(undecryptableError{})
		case <-t.held.back:
			cancel(heldBackError{})
		case <-waiting.Done():
		}
	}()
	err := c.Wait(waiting)
	cause := context.Cause(waiting)
	cancel(nil)
	<-done
	if err != nil && errors.Is(cause, heldBackError{}) {
		return nil
	}
	if err != nil && errors.Is(cause, undecryptableError{}) {
		klog.FromContext(ctx).Error(cause, "A resource cannot be listed until its values can be read", "resource", t.resource)
		return nil
	}
	return err
}
