package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
)

// encryptedPrefix starts every encrypted value, with any encryption.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/value/encrypt/identity/identity.go
func encryptedPrefix() []byte { return []byte("k8s:enc:") }

// slow is how long decryption takes to fail when the key service does not answer,
// and the value is not at fault.
const slow = 100 * time.Millisecond

// undecrypted are values that could not be decrypted, because a key is missing or a key
// service is away. The feed tries them again until it can. counts needs the feed's
// lock; only the goroutine that reads the watch uses the rest.
type undecrypted struct {
	values map[string]*mvccpb.KeyValue // by place
	counts map[schema.GroupResource]int
	pause  time.Time // no try before this time
	cause  error     // why the last one could not be decrypted
}

// Unreadable returns an error that names the resources with values that cannot be
// decrypted, if there are any. Of such an object only the key is known: its place
// and name, but neither its UID nor its owners.
func (f *Feed) Unreadable() error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if len(f.undecrypted.counts) == 0 {
		return nil
	}
	var all []string
	for resource, n := range f.undecrypted.counts {
		all = append(all, fmt.Sprintf("%d of %s", n, resource))
	}
	slices.Sort(all)
	return fmt.Errorf("stored objects cannot be read (%s): %w", strings.Join(all, ", "), f.undecrypted.cause)
}

// open decrypts a value, if it is encrypted. A server needs the encryption that
// another server of the same storage used.
func (f *Feed) open(ctx context.Context, place string, kv *mvccpb.KeyValue) ([]byte, error) {
	if err := revision.DamageOf(kv.Value); err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(kv.Value, encryptedPrefix()) {
		return kv.Value, nil
	}
	if f.hub.transformers == nil {
		return nil, errors.New("they are encrypted, but the server has no encryption configuration")
	}
	if time.Now().Before(f.undecrypted.pause) {
		return nil, f.undecrypted.cause
	}
	begun := time.Now()
	var first error
	for _, resource := range keys.Resources(place) {
		out, _, err := f.hub.transformers.TransformerForResource(resource).TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
		if err == nil {
			return out, nil
		}
		if first == nil {
			first = err
		}
	}
	if time.Since(begun) >= slow {
		// If each value waited for a service that is away, the feed would stand still.
		f.undecrypted.pause = time.Now().Add(retry)
	}
	return nil, first
}

// seal keeps a value that cannot be decrypted. The object stays as it was known
// before, so that nobody takes it for deleted; of a new one only the place is
// known.
func (f *Feed) seal(ctx context.Context, place string, kv *mvccpb.KeyValue, cause error) {
	resource := keys.Resources(place)[0]
	f.mu.Lock()
	_, known := f.undecrypted.values[place]
	if !known {
		f.undecrypted.counts[resource]++
	}
	f.undecrypted.values[place], f.undecrypted.cause = kv, cause
	first := !known && f.undecrypted.counts[resource] == 1
	_, there := f.index.objects[place]
	f.mu.Unlock()
	if first {
		klog.FromContext(ctx).Error(cause, "Stored objects cannot be read: garbage collection and namespace deletion wait for them",
			"resource", resource, "key", string(kv.Key))
	}
	if !there {
		f.replace(place, f.placeholder(place, resource, kv.ModRevision), kv.ModRevision, true)
	}
}

// placeholder is an object of which only the place is known.
func (f *Feed) placeholder(place string, resource schema.GroupResource, revision int64) *Object {
	o := &Object{Type: f.typeOf(resource, metav1.TypeMeta{}), UID: UIDOf(types.UID("sealed " + place)), Revision: revision}
	o.Name = strings.TrimPrefix(place, keys.Space{}.Of(resource)+"/")
	if namespace, name, found := strings.Cut(o.Name, "/"); found {
		o.Namespace, o.Name = namespace, name
	}
	return o
}

// forget drops a value that was decrypted or is gone. It needs the feed's lock.
func (f *Feed) forget(place string) {
	if _, ok := f.undecrypted.values[place]; !ok {
		return
	}
	delete(f.undecrypted.values, place)
	resource := keys.Resources(place)[0]
	if f.undecrypted.counts[resource]--; f.undecrypted.counts[resource] == 0 {
		delete(f.undecrypted.counts, resource)
	}
}

// decryptAgain tries to decrypt the undecrypted values once more.
func (f *Feed) decryptAgain(ctx context.Context) {
	for _, place := range slices.Collect(maps.Keys(f.undecrypted.values)) {
		if ctx.Err() != nil || time.Now().Before(f.undecrypted.pause) {
			return
		}
		f.put(ctx, place, f.undecrypted.values[place])
	}
}
