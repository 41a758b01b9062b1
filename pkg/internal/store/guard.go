package store

import (
	"context"
	"strings"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Put is an object on its way to the storage, after admission.
type Put struct {
	// Key is that of the object in the storage.
	Key string
	// Resource is the group and plural name.
	Resource schema.GroupResource
	// Namespace is empty for cluster-scoped objects.
	Namespace, Name string
	// Bytes is the size of the key and the value, as they will be stored.
	Bytes int64
	// Replaces is the revision of the object that this replaces, or 0.
	Replaces int64
}

// Guard is called before an object is stored. Its error is the answer to the client,
// and nothing is stored. Otherwise it may return a function, which is called when the
// storage has answered: kept is false if the object is surely not stored, as after a
// conflict.
type Guard func(ctx context.Context, p Put) (done func(kept bool), err error)

// guarded calls guards before each put.
type guarded struct {
	kubernetes.Interface
	resource schema.GroupResource
	root     string // what the keys of the resource start with
	guards   []Guard
}

// OptimisticPut implements kubernetes.Interface.
func (g *guarded) OptimisticPut(
	ctx context.Context, key string, value []byte, expected int64, opts kubernetes.PutOptions,
) (kubernetes.PutResponse, error) {
	p := Put{Key: key, Resource: g.resource, Bytes: int64(len(key) + len(value)), Replaces: expected}
	p.Name = strings.TrimPrefix(key, g.root)
	if namespace, name, ok := strings.Cut(p.Name, "/"); ok {
		p.Namespace, p.Name = namespace, name
	}
	kept := false // nothing is, when a guard refuses
	var told []func(bool)
	defer func() {
		for _, done := range told {
			done(kept)
		}
	}()
	for _, guard := range g.guards {
		done, err := guard(ctx, p)
		if err != nil {
			return kubernetes.PutResponse{}, err
		}
		if done != nil {
			told = append(told, done)
		}
	}
	r, err := g.Interface.OptimisticPut(ctx, key, value, expected, opts)
	kept = r.Succeeded || err != nil // after an error it may be
	return r, err
}
