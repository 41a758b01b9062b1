package feed_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// safe decrypts what has "k8s:enc:" before it and the key and resource after
// it, when it is open.
type safe struct {
	mu   sync.Mutex
	open bool
}

func (s *safe) set(open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = open
}

// TransformerForResource implements value.ResourceTransformers.
func (s *safe) TransformerForResource(r schema.GroupResource) value.Transformer { return drawer{s, r} }

type drawer struct {
	safe     *safe
	resource schema.GroupResource
}

// TransformFromStorage implements value.Transformer.
func (d drawer) TransformFromStorage(_ context.Context, data []byte, key value.Context) ([]byte, bool, error) {
	d.safe.mu.Lock()
	defer d.safe.mu.Unlock()
	if !d.safe.open {
		return nil, false, errors.New("the safe is closed")
	}
	head := "k8s:enc:" + d.resource.String() + ":" + string(key.AuthenticatedData()) + ":"
	if !bytes.HasPrefix(data, []byte(head)) {
		return nil, false, errors.New("another drawer")
	}
	return data[len(head):], false, nil
}

// TransformToStorage implements value.Transformer.
func (drawer) TransformToStorage(context.Context, []byte, value.Context) ([]byte, error) {
	return nil, errors.New("not needed")
}

// hide is a value as the safe keeps it.
func hide(resource, key string, content []byte) []byte {
	return append([]byte("k8s:enc:"+resource+":"+key+":"), content...)
}

// encrypted are values of each shape of a key, with the namespace and name in it.
func encrypted(t *testing.T) map[string]struct {
	resource        string
	namespace, name string
	value           []byte
} {
	t.Helper()
	return map[string]struct {
		resource        string
		namespace, name string
		value           []byte
	}{
		"/registry/secrets/shop/a":           {"secrets", "shop", "a", configMap(t, "shop", "a", "u-1")},
		"/registry/namespaces/b":             {"namespaces", "", "b", configMap(t, "", "b", "u-2")},
		"/registry/example.com/things/c":     {"things.example.com", "", "c", thing("", "c", "u-3")},
		"/registry/example.com/parts/shop/d": {"parts.example.com", "shop", "d", thing("shop", "d", "u-4", "u-3")},
		"/registry/apps/sets/shop/e":         {"sets.apps", "shop", "e", thing("shop", "e", "u-5")},
	}
}

// TestEncrypted reads encrypted values of every shape of a key, at the start and
// from the watch.
func TestEncrypted(t *testing.T) {
	s := &safe{open: true}
	client, f := startSafe(t, s, func(c *clientv3.Client) {
		put(t, c, "/registry/dotless/wholes/f", hide("wholes.dotless", "/registry/dotless/wholes/f", thing("", "f", "u-6")))
	})
	for key, v := range encrypted(t) {
		put(t, client, key, hide(v.resource, key, v.value))
	}
	catchUp(t, f)
	for _, v := range encrypted(t) {
		if n := f.Count(v.namespace, schema.ParseGroupResource(v.resource)); n != 1 {
			t.Errorf("%d %s, want 1", n, v.resource)
		}
	}
	if n := f.Count("", schema.ParseGroupResource("wholes.dotless")); n != 1 {
		t.Errorf("%d cluster-scoped ones of a group without a dot, want 1", n)
	}
	if n := len(f.Dependents(feed.UIDOf("u-3"))); n != 1 {
		t.Errorf("%d dependents, want 1", n)
	}
	if err := f.Unreadable(); err != nil {
		t.Error(err)
	}
}

// TestSealed has values that cannot be decrypted for a while: new ones are known
// by their place, known ones are as they were, and both are caught up with.
func TestSealed(t *testing.T) {
	s := &safe{}
	client, f := startSafe(t, s, func(c *clientv3.Client) {
		for key, v := range encrypted(t) {
			put(t, c, key, hide(v.resource, key, v.value))
		}
	})
	for key, v := range encrypted(t) {
		if n := f.Count(v.namespace, schema.ParseGroupResource(v.resource)); n != 1 {
			t.Errorf("sealed: %d of %s, want 1", n, key)
		}
	}
	if f.ByUID(feed.UIDOf("u-1")) != nil {
		t.Error("a UID is known of a value that cannot be read")
	}
	if err := f.Unreadable(); err == nil || !strings.Contains(err.Error(), "1 of secrets") || !strings.Contains(err.Error(), "the safe is closed") {
		t.Errorf("unreadable: %v", err)
	}
	drop(t, client, "/registry/apps/sets/shop/e")
	catchUp(t, f) // or it is decrypted before the feed hears that it is gone
	s.set(true)
	for end := time.Now().Add(2 * time.Minute); f.Unreadable() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never decrypted:", f.Unreadable())
		}
	}
	if o := f.ByUID(feed.UIDOf("u-1")); o == nil || o.Name != "a" || f.Len() != 4 {
		t.Errorf("after it was opened: %+v of %d objects", o, f.Len())
	}
	// It is closed again: what was known stays.
	s.set(false)
	put(t, client, "/registry/secrets/shop/a", hide("secrets", "/registry/secrets/shop/a", configMap(t, "shop", "a", "u-1", "u-2")))
	catchUp(t, f)
	if o := f.ByUID(feed.UIDOf("u-1")); o == nil || o.Owned() {
		t.Errorf("after it was closed: %+v", o)
	}
	if f.Unreadable() == nil {
		t.Error("it is not told that a value cannot be read")
	}
	drop(t, client, "/registry/secrets/shop/a")
	catchUp(t, f)
	if err := f.Unreadable(); err != nil || f.ByUID(feed.UIDOf("u-1")) != nil {
		t.Errorf("after it was deleted: %v", err)
	}
}

// TestSealedWithoutSafe: a server without encryption knows that it cannot read
// what one with it has written.
func TestSealedWithoutSafe(t *testing.T) {
	const key = "/registry/secrets/shop/a"
	_, f, _ := start(t, memory.Store{}, func(c *clientv3.Client) { put(t, c, key, []byte("k8s:enc:secretbox:v1:key:unreadable")) }, nil)
	if n := f.Count("shop", schema.ParseGroupResource("secrets")); n != 1 {
		t.Errorf("%d secrets, want 1", n)
	}
	if err := f.Unreadable(); err == nil || !strings.Contains(err.Error(), "no encryption configuration") {
		t.Errorf("unreadable: %v", err)
	}
}

// startSafe runs a feed that reads through the safe.
func startSafe(t *testing.T, s *safe, before func(*clientv3.Client)) (*clientv3.Client, mirror) {
	t.Helper()
	var d controlplane.Storage = memory.Store{}
	client, f, _ := start(t, d, before, s)
	return client, f
}
