package envtest

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
)

// stopTimeout is how long an etcd may take to stop. envtest waits 20 seconds
// before it kills it.
const stopTimeout = 10 * time.Second

// member holds the flags of etcd.
type member struct {
	log     Logging
	storage etcd.Embedded
	version bool
	// Accepted flags that mean nothing to a member without peers.
	advertise, peers, name string
}

func (m *member) command() *cobra.Command {
	c := &cobra.Command{
		Use:   etcdName,
		Short: "An etcd with one member, for envtest",
		Long: `An etcd with one member, for controller-runtime's envtest. It is the etcd
server as a library. It accepts other flags than those below, but they have no effect.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if m.version {
				return printVersion(cmd.OutOrStdout(), etcdName)
			}
			return m.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.StringVar(&m.storage.Dir, "data-dir", "default.etcd", "data directory")
	f.StringSliceVar(&m.storage.Listen, "listen-client-urls", []string{"http://localhost:2379"},
		"URLs to serve clients and /health at, without TLS")
	f.StringVar(&m.advertise, "advertise-client-urls", "", "accepted for compatibility: the listen URLs are advertised")
	f.StringVar(&m.peers, "listen-peer-urls", "", "accepted for compatibility: there are no peers to listen for")
	f.StringVar(&m.name, "name", "", "accepted for compatibility: there is one member")
	f.BoolVar(&m.storage.UnsafeNoSync, "unsafe-no-fsync", false, "let the operating system decide when writes reach the disk")
	f.Int64Var(&m.storage.QuotaBytes, "quota-backend-bytes", 0, "database size at which writes are refused (0: 2 GiB)")
	f.Uint64Var(&m.storage.SnapshotCount, "snapshot-count", 0, "number of writes after which the older log is dropped (0: 10000)")
	f.BoolVar(&m.version, "version", false, "print the version")
	return c
}

func (m *member) run(ctx context.Context, log io.Writer) error {
	ctx = m.log(ctx, log, config.Log{})
	storage := m.storage.Open()
	if err := storage.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // it was told to stop while it started
		}
		return err
	}
	<-ctx.Done()
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return storage.Stop(late)
}
