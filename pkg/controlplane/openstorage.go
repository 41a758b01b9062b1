package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/utils/clock"

	"github.com/sailplane-dev/sailplane/pkg/internal/format"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// openStorage is a storage that runs, and what goes with it.
type openStorage struct {
	engine    string
	storage   Backend
	client    *clientv3.Client // of the server itself
	compactor etcd3.Compactor
	backend   *store.Backend
	health    *store.Health
	living    []healthz.HealthChecker // what fails when only a restart helps
}

// openStorage starts the storage and what goes with it.
func (r *run) openStorage(ctx context.Context) (*openStorage, error) {
	traits := r.server.built.storage.Traits()
	storage := r.server.built.storage.Open()
	r.onStop(func(ctx context.Context) error {
		if err := storage.Stop(ctx); err != nil {
			return fmt.Errorf("storage: %w", err)
		}
		return nil
	})
	if err := storage.Start(ctx); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	o := &openStorage{engine: cmp.Or(traits.Engine, "other"), storage: storage}
	if e, ok := storage.(Ending); ok {
		r.endWith(e)
		o.living = []healthz.HealthChecker{ending{"storage-" + o.engine, e}}
	}
	if err := upstream.AllowProgressRequests(ctx); err != nil {
		return nil, err
	}
	client, err := storage.Client()
	if err != nil {
		return nil, fmt.Errorf("storage: client for compaction: %w", err)
	}
	compactor := etcd3.NewCompactor(client, r.server.built.history, clock.RealClock{}, nil)
	r.onStop(func(context.Context) error {
		compactor.Stop()
		_ = client.Close() // the error only says that Close ended the context
		return nil
	})
	o.client, o.compactor = client, compactor
	o.backend = &store.Backend{
		Client: storage.Client, Prefix: r.server.built.prefix, Shared: traits.Shared, CheapProgress: traits.CheapProgress,
		Fences: traits.Shared && traits.MaxOps > 1, Compactor: compactor,
	}
	if limit := r.server.built.limits.HistoryBytes; limit != Unlimited {
		o.backend.History = store.NewHistory(int64(limit))
	}
	o.health = store.NewHealth(o.engine, client, r.server.built.prefix)
	return o, nil
}

// ending is the health check of a storage that may end by itself.
type ending struct {
	name    string
	storage Ending
}

// Name implements healthz.HealthChecker.
func (e ending) Name() string { return e.name }

// Check implements healthz.HealthChecker.
func (e ending) Check(*http.Request) error {
	if signal.Closed(e.storage.Done()) {
		return fmt.Errorf("the storage has stopped: restart the server: %w", e.storage.Err())
	}
	return nil
}

// endWith ends the server when the storage ends by itself: until a new start the
// storage would refuse all requests.
func (r *run) endWith(e Ending) {
	over := make(chan struct{})
	watched := background(func() {
		select {
		case <-e.Done():
			r.fail(fmt.Errorf("storage: %w", e.Err()))
		case <-over:
		}
	})
	r.onStop(func(context.Context) error {
		close(over)
		<-watched
		return nil
	})
}

// figuresTimeout is how long a storage may take to answer a request for its figures.
const figuresTimeout = 2 * time.Second

// measured is a Backend that knows its size.
type measured interface {
	Measure(context.Context) metrics.Storage
}

// storageStats are the metrics of a storage: what it reports itself, and else what the
// server sees.
type storageStats struct {
	*openStorage
	host *host

	mu          sync.Mutex
	compactedAt int64
	compacted   time.Time
}

func (o *openStorage) stats(h *host) *storageStats {
	return &storageStats{openStorage: o, host: h, compacted: time.Now()}
}

// StorageState is what a server knows of its storage. Nil, and the zero time: unknown.
type StorageState struct {
	// Engine is what kind of storage it is: [Traits.Engine].
	Engine string
	// Revision is that of the last write; 0 if the storage does not answer.
	Revision int64
	// File is how many bytes the storage takes on disk or in memory, and History how
	// many of them are values that were replaced or deleted.
	File, History *int64
	// Compacted is when history was last dropped, or when the storage was started.
	Compacted time.Time
	// Lag is how many revisions the slowest watch is behind.
	Lag *int64
	// Backup is the last one of the storage, whichever server it was taken from; the zero value if none is
	// known.
	Backup Backup
}

// Backup is one of all that is stored.
type Backup struct {
	// Taken is when, and Revision the one that it is of.
	Taken    time.Time `json:"taken"`
	Revision int64     `json:"revision"`
}

// NoteBackup notes in the storage that a backup of it was completed. [Server.Storage] and the metrics tell.
func (s *Server) NoteBackup(ctx context.Context, b Backup) error {
	h := s.running()
	if h == nil {
		return errors.New("note a backup: the server does not run")
	}
	value, err := json.Marshal(b)
	if err != nil {
		return err
	}
	shared := h.stats.shared()
	for {
		if last, revision, err := shared.backup(ctx); err != nil {
			return fmt.Errorf("note a backup: %w", err)
		} else if last.Taken.After(b.Taken) {
			return nil
		} else if done, err := shared.Put(ctx, format.BackupName, value, revision); done || err != nil {
			return err
		}
	}
}

// backup is the last one that was noted.
func (s *Shared) backup(ctx context.Context) (b Backup, revision int64, err error) {
	value, revision, err := s.Get(ctx, format.BackupName)
	if err == nil && revision > 0 {
		err = json.Unmarshal(value, &b)
	}
	return b, revision, err
}

func (o *openStorage) shared() *Shared { return &Shared{client: o.client, prefix: o.backend.Prefix} }

// Storage is the state of the server's storage, which gets a few seconds to answer.
// It is the zero value while the server does not run.
func (s *Server) Storage(ctx context.Context) StorageState {
	h := s.running()
	if h == nil {
		return StorageState{}
	}
	known := h.stats.ask()
	state := StorageState{
		Engine: h.stats.engine, File: known.File, History: known.History, Compacted: known.Compacted, Lag: known.Lag,
	}
	ctx, cancel := context.WithTimeout(ctx, figuresTimeout)
	defer cancel()
	// The health checks say why the storage does not answer.
	if r, err := h.stats.client.Get(ctx, h.backend.Prefix, clientv3.WithCountOnly(), clientv3.WithLimit(1)); err == nil {
		state.Revision = r.Header.Revision
	}
	if last, _, err := h.stats.shared().backup(ctx); err == nil {
		state.Backup = last
	}
	return state
}

// Stored returns a client of the server's storage, and what all its keys start with, for those who need
// what is stored as it is: backups. Objects are for the API. It is nil while the server does not run, and
// of no use after that; the caller does not close it.
func (s *Server) Stored() (c *clientv3.Client, prefix string) {
	h := s.running()
	if h == nil {
		return nil, ""
	}
	return h.stats.client, h.backend.Prefix
}

// StoredClient returns a further client of the server's storage, with watches of its own. The
// caller closes it.
func (s *Server) StoredClient() (*clientv3.Client, error) {
	h := s.running()
	if h == nil {
		return nil, errors.New("the server does not run")
	}
	return h.backend.Client()
}

// ask returns the figures for metrics.Report.
func (f *storageStats) ask() metrics.Storage {
	ctx, cancel := context.WithTimeout(context.Background(), figuresTimeout)
	defer cancel()
	var s metrics.Storage
	if m, ok := f.storage.(measured); ok {
		s = m.Measure(ctx)
	} else if status, err := f.client.Status(ctx, ""); err == nil {
		s.File = &status.DbSize
	}
	if last, _, err := f.shared().backup(ctx); err == nil {
		s.Backup = last.Taken
	}
	at, when := f.lastCompaction()
	if s.Compacted.IsZero() {
		s.Compacted = when
	}
	hub := f.host.followed()
	if hub == nil {
		return s
	}
	if s.History == nil {
		history := hub.History(at)
		s.History = &history
	}
	if s.Lag == nil {
		if lag, err := hub.Lag(ctx); err == nil {
			s.Lag = &lag
		}
	}
	return s
}

// lastCompaction returns the revision before which there is no history, and when
// this server first saw it: any server of the storage may have compacted.
func (f *storageStats) lastCompaction() (revision int64, when time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := f.compactor.CompactRevision(); at != f.compactedAt {
		f.compactedAt, f.compacted = at, time.Now()
	}
	return f.compactedAt, f.compacted
}
