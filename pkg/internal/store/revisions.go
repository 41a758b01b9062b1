package store

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Revisions asks the storage for the revision of each object of a resource, by "NAME" or
// "NAMESPACE/NAME"; of one object, if it is named. No object is read.
func (b *Stores) Revisions(ctx context.Context, resource schema.GroupResource, name string) (map[string]int64, error) {
	client, err := b.Client()
	if err != nil {
		return nil, fmt.Errorf("storage client: %w", err)
	}
	defer client.Close() // the error only says that Close ended the context
	prefix, options := b.space().Range(resource), []clientv3.OpOption{clientv3.WithKeysOnly()}
	if name == "" {
		options = append(options, clientv3.WithPrefix())
	}
	r, err := client.Get(ctx, prefix+name, options...)
	if err != nil {
		return nil, fmt.Errorf("read the revisions of %s: %w", resource, err)
	}
	all := make(map[string]int64, len(r.Kvs))
	for _, kv := range r.Kvs {
		all[strings.TrimPrefix(string(kv.Key), prefix)] = kv.ModRevision
	}
	return all, nil
}
