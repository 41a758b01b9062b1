package controlplane

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Elsewhere is a part of what a server has stored that is in another storage than the server's own. A backup of the
// server has it as if it were in that.
type Elsewhere struct {
	// Name says in errors what it is, and where: `EtcdStorage "a" in storage "archive"`.
	Name string
	// Client is one of the other storage, and Revision that at which the part is read there.
	Client   *clientv3.Client
	Revision int64
	// Root starts the keys that are read, which a backup has unchanged. They are below the server's prefix, and
	// not among those of another part. What the server's own storage has with these keys is in no backup.
	Root string
	// Key follows all of them, and before any other key of the server: a backup has it with Value.
	Key   string
	Value []byte
}

// ElsewhereFunc returns the parts that other storages have, as it is at a revision of the server's own storage. It
// fails if one of them cannot be read: nothing is left out of a backup without a word.
type ElsewhereFunc func(ctx context.Context, revision int64) ([]Elsewhere, error)

// KeepElsewhere declares that a part keeps something in other storages that belongs in a backup of the server.
func (p *ServerPlan) KeepElsewhere(name string, parts ElsewhereFunc) {
	p.elsewhere = append(p.elsewhere, named[ElsewhereFunc]{p.root.part, name, parts})
}

// Elsewhere returns what other storages have of the server (see [ServerPlan.KeepElsewhere]), as it is at a revision of
// its own storage. There is nothing while the server does not run.
func (s *Server) Elsewhere(ctx context.Context, revision int64) (all []Elsewhere, err error) {
	h := s.running()
	if h == nil {
		return nil, nil
	}
	for _, one := range h.plan.elsewhere {
		parts, err := one.value(ctx, revision)
		if err != nil {
			return nil, one.failed(err)
		}
		all = append(all, parts...)
	}
	return all, nil
}
