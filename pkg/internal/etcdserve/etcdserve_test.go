package etcdserve_test

import (
	"context"
	"net"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdserve"
	"github.com/sailplane-dev/sailplane/pkg/internal/keys"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/storagetest"
)

func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// lent is a storage that is reached through a server, which shows what is below a root.
type lent struct {
	controlplane.Storage
	root      string
	offset    int64
	keeper    func(etcdserve.Everything) etcdserve.Keeper // nil: everything
	maxAnswer int64
}

// Open implements controlplane.Storage.
func (l lent) Open() controlplane.Backend {
	return &backend{Backend: l.Storage.Open(), lent: l}
}

type backend struct {
	controlplane.Backend
	lent    lent
	base    *clientv3.Client
	server  *etcdserve.Server
	address string
	done    chan struct{}
	clients etcdclient.Pool
}

// Start implements controlplane.Backend.
func (b *backend) Start(ctx context.Context) error {
	if err := b.Backend.Start(ctx); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if b.base, err = b.Backend.Client(); err != nil {
		return err
	}
	view := &etcdserve.View{
		Client: b.base, Open: b.Backend.Client, Root: b.lent.root, Offset: b.lent.offset, ID: 1,
		Keeper: etcdserve.Everything{Client: b.base}, MaxAnswer: b.lent.maxAnswer,
	}
	if b.lent.keeper != nil {
		view.Keeper = b.lent.keeper(etcdserve.Everything{Client: b.base})
	}
	b.server = etcdserve.New(func(context.Context) (*etcdserve.View, error) { return view, nil }, etcdserve.Options{})
	b.address, b.done = "http://"+listener.Addr().String(), make(chan struct{})
	go func() {
		defer close(b.done)
		_ = b.server.Serve(listener)
	}()
	return nil
}

// Client implements controlplane.Backend.
func (b *backend) Client() (*clientv3.Client, error) {
	if b.server == nil {
		return b.Backend.Client()
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{b.address}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	return b.clients.Add(c)
}

// Stop implements controlplane.Backend.
func (b *backend) Stop(ctx context.Context) error {
	b.clients.Close()
	if b.server != nil {
		b.server.Stop()
		<-b.done
		_ = b.base.Close()
	}
	return b.Backend.Stop(ctx)
}

// TestContract: through a server a storage keeps its promises, the whole of it and a
// part whose revisions go on from another storage.
func TestContract(t *testing.T) {
	t.Parallel()
	root, _ := keys.Space{Prefix: "/registry"}.Lent("a")
	for name, l := range map[string]lent{
		"whole": {Storage: memory.Store{}},
		"part":  {Storage: memory.Store{}, root: root, offset: 1 << 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storagetest.Run(t, func(testing.TB) controlplane.Storage { return l })
		})
	}
}
