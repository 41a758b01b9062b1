package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/etcdclient"
	"github.com/sailplane-dev/sailplane/pkg/internal/filelock"
	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
)

const (
	// notifyInterval is how often a watch without events gets the progress it
	// asked for: the value that Kubernetes asks of etcd.
	notifyInterval = 5 * time.Second
	// electionRetry is how often a starting etcd is told to elect itself.
	electionRetry = time.Millisecond
	// electionPatience is how long a starting etcd may make no progress.
	electionPatience = 30 * time.Second
	// failedStart is how long a failed start may take to end by itself.
	failedStart = 100 * time.Millisecond
	// failedStop is how long a stop waits for an etcd that failed: some of its
	// goroutines may wait for one that ended.
	failedStop = 2 * time.Second
	// maxRequest leaves the limit on the size of an object to the store of its
	// resource: a request also holds the key, and a transaction several of both.
	maxRequest = 8 << 20
	// snapshotCount and catchUpEntries are how many requests etcd keeps on disk and
	// in memory, whatever their size, and maxLogFiles how many files of 64 MiB. In
	// memory it lets another hundred pile up.
	snapshotCount  = 1000
	catchUpEntries = 1
	maxLogFiles    = 2
	// memberName and memberURL name the only member in its own data. Nothing
	// listens there.
	memberName = "sailplane"
	memberURL  = "127.0.0.1:2380"
	// engine is what metrics and health checks call both storages of this package.
	engine = "etcd"
)

// Embedded is an etcd with one member in this process. It opens no socket,
// unless told to, and its directory belongs to this process alone: a second
// server on the same directory is an error.
//
// A damaged directory, a full disk and the like are errors of the start. Once it
// runs, a fatal error of etcd (a failing write of its log, say) ends the server
// with that error; the process goes on. A panic in one of etcd's own goroutines
// that it does not report first, and a fault in a memory-mapped file that another
// program truncates, still end the process.
type Embedded struct {
	// Dir is the data directory. It is created with mode 0700. Empty: "data"
	// in the working directory.
	Dir string
	// UnsafeNoSync leaves it to the operating system when writes reach the
	// disk: faster, and after a power loss the directory may be unusable. A
	// killed process loses nothing. False: every write is on disk before it is
	// acknowledged.
	UnsafeNoSync bool
	// QuotaBytes is the size of the database at which writes are refused: with
	// 429 while dropping history can make room, with 507 when only deletes can.
	// 0: 8 GiB.
	QuotaBytes int64
	// HistoryBytes is how much history is kept at most: older history is dropped,
	// sooner than the server does by age. If much of the file is free then, it is
	// rewritten, smaller; nothing is read or written meanwhile. 0: 48 MiB, or a
	// quarter of the quota.
	HistoryBytes int64
	// SnapshotCount is the number of writes after which etcd drops the log
	// before them. 0: 1000.
	SnapshotCount uint64
	// Listen are client URLs at which other processes reach it without
	// credentials, such as [Cluster] and etcdctl: "http://127.0.0.1:2379". They
	// answer /health too. Empty: none.
	Listen []string
}

var _ controlplane.Raising = Embedded{}

// Open implements controlplane.Storage.
func (e Embedded) Open() controlplane.Backend { return e.OpenAbove(0) }

// OpenAbove implements controlplane.Raising.
func (e Embedded) OpenAbove(lost int64) controlplane.Backend {
	if e.Dir == "" {
		e.Dir = "data"
	}
	f := newFailure()
	return &embedded{description: e, lost: lost, failure: f, calls: &calls{failure: f}}
}

// String names the directory.
func (e Embedded) String() string { return fmt.Sprintf("etcd directory %q", e.Dir) }

// Traits implements controlplane.Storage. Servers of other processes may use an
// etcd that listens.
func (e Embedded) Traits() controlplane.Traits {
	return controlplane.Traits{
		Engine: engine, Shared: len(e.Listen) > 0, CheapProgress: true, MaxOps: maxOps, Durable: !e.UnsafeNoSync,
	}
}

// embedded is a storage on an etcd in this process.
type embedded struct {
	description Embedded
	lost        int64 // revisions go on above it
	clients     etcdclient.Pool
	failure     *failure
	calls       *calls

	mu      sync.Mutex
	started bool
	lock    *filelock.Lock
	etcd    *embed.Etcd
	servers etcdclient.Servers
	keeper  *keeper
	keeping sync.WaitGroup
	unkeep  context.CancelFunc
	// abandoned is closed when a start that was given up has cleaned up.
	abandoned chan struct{}
}

var _ controlplane.Ending = &embedded{}

// Done implements controlplane.Ending.
func (s *embedded) Done() <-chan struct{} { return s.failure.happened }

// Err implements controlplane.Ending.
func (s *embedded) Err() error {
	if err := s.failure.err(); err != nil {
		return fmt.Errorf("%v: %w", s.description, advise(err))
	}
	return nil
}

// Measure returns what the metrics report.
func (s *embedded) Measure(context.Context) metrics.Storage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeper == nil {
		return metrics.Storage{}
	}
	return s.keeper.measured()
}

// Start implements controlplane.Backend.
func (s *embedded) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return fmt.Errorf("%v: started before; open the storage again", s.description)
	}
	s.started = true
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("%v: %w", s.description, err)
	}
	return nil
}

func (s *embedded) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("start: %w", context.Cause(ctx))
	}
	listen, err := clientURLs(s.description.Listen)
	if err != nil {
		return err
	}
	p, err := prepare(s.description.Dir)
	if err != nil {
		return err
	}
	s.lock = p.lock
	if err := s.launch(ctx, s.config(p.dir, listen)); err != nil {
		return err
	}
	err = s.elect(ctx)
	if err == nil && p.isNew {
		err = endBootstrap(p.dir)
	}
	if err == nil && s.etcd.Server.KV().Rev() <= s.lost {
		err = s.raise(ctx, p.dir, listen)
	}
	if err != nil {
		return errors.Join(err, s.stop(context.Background()))
	}
	s.failure.started.Store(true)
	server := s.etcd.Server
	keeper := newKeeper(server, s.description, p.dir)
	// Not the start's context: this one lasts until Stop.
	kept, unkeep := context.WithCancel(context.WithoutCancel(ctx))
	s.unkeep = unkeep
	s.keeper = keeper
	s.keeping.Go(func() { keeper.run(kept) })
	watched := &told{}
	kv := &guardedKV{KVServer: v3rpc.NewQuotaKVServer(server), calls: s.calls, keeper: keeper}
	if len(listen) == 0 {
		kv.told = watched
	}
	s.servers = etcdclient.Servers{
		KV:          kv,
		Watch:       &guardedWatch{WatchServer: v3rpc.NewWatchServer(server), calls: s.calls, told: watched},
		Lease:       &guardedLease{LeaseServer: v3rpc.NewQuotaLeaseServer(server), kv: kv},
		Maintenance: v3rpc.NewMaintenanceServer(server, nil),
		Cluster:     v3rpc.NewClusterServer(server),
	}
	return nil
}

func (s *embedded) config(dir string, listen []url.URL) *embed.Config {
	c := embed.NewConfig()
	c.Name = memberName
	c.Dir = dir
	c.ListenClientUrls, c.AdvertiseClientUrls = listen, listen
	c.ListenPeerUrls = nil
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: memberURL}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.EnableGRPCGateway = false
	c.UnsafeNoFsync = s.description.UnsafeNoSync
	c.QuotaBackendBytes = cmp.Or(s.description.QuotaBytes, defaultQuota)
	c.WatchProgressNotifyInterval = notifyInterval
	c.MaxRequestBytes = maxRequest
	c.SnapshotCount = cmp.Or(s.description.SnapshotCount, snapshotCount)
	// No member has to catch up, and the entries kept for that are in memory.
	c.SnapshotCatchUpEntries = catchUpEntries
	c.MaxWalFiles = maxLogFiles
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.failure.logger(dir))
	return c
}

// clientURLs parses URLs to listen at. TLS would need certificates.
func clientURLs(values []string) ([]url.URL, error) {
	var urls []url.URL
	for _, value := range values {
		u, err := url.Parse(value)
		if err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" {
			return nil, fmt.Errorf("listen at %q: want http://HOST:PORT", value)
		}
		urls = append(urls, *u)
	}
	return urls, nil
}

// launch runs embed.StartEtcd, which takes no context and may never return
// after an error: then it is left running with the lock, and cleaned up if it
// ends.
func (s *embedded) launch(ctx context.Context, c *embed.Config) error {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			// Runs also when a fatal log entry has ended this goroutine.
			if p := recover(); p != nil {
				r.err = fmt.Errorf("%v", p)
			}
			if r.etcd == nil && r.err == nil {
				r.err = s.failure.err()
			}
			done <- r
		}()
		r.etcd, r.err = embed.StartEtcd(c)
	}()
	var err error
	select {
	case r := <-done:
		s.etcd = r.etcd
		if r.err != nil {
			return errors.Join(advise(r.err), s.unlock())
		}
		return nil
	case <-s.failure.happened:
		err = advise(s.failure.err())
		// If the start itself failed, it ends now.
		select {
		case r := <-done:
			if s.etcd = r.etcd; s.etcd != nil {
				return errors.Join(err, s.stop(context.Background()))
			}
			return errors.Join(err, s.unlock())
		case <-time.After(failedStart):
		}
	case <-ctx.Done():
		err = fmt.Errorf("start: %w", context.Cause(ctx))
	}
	lock := s.lock
	s.lock = nil
	abandoned := make(chan struct{})
	s.abandoned = abandoned
	go func() {
		defer close(abandoned)
		if r := <-done; r.etcd != nil {
			r.etcd.Close()
		}
		_ = lock.Release()
	}()
	return err
}

// elect makes the only member leader; left alone, etcd waits up to a second.
// etcd does not say when it can be elected, and ignores the message before that
// and after the election.
func (s *embedded) elect(ctx context.Context) error {
	server := s.etcd.Server
	id := uint64(server.MemberID())
	now := &raftpb.Message{Type: raftpb.MsgTimeoutNow.Enum(), From: &id, To: &id}
	tick := time.NewTicker(electionRetry)
	defer tick.Stop()
	moved, at := time.Now(), uint64(0)
	for {
		if now := server.AppliedIndex() + server.CommittedIndex(); now != at {
			moved, at = time.Now(), now
		} else if time.Since(moved) > electionPatience {
			return fmt.Errorf("etcd has read no more of its log and has elected no leader for %v: the log in %s is damaged; "+
				"restore a copy of the directory or choose another", electionPatience, filepath.Join(s.description.Dir, memberDir, "wal"))
		}
		select {
		case <-server.ReadyNotify():
			return nil
		case <-s.failure.happened:
			return advise(s.failure.err())
		case <-server.StopNotify():
			return errors.New("etcd stopped during its start")
		case <-ctx.Done():
			return fmt.Errorf("wait for the election: %w", context.Cause(ctx))
		case <-tick.C:
		}
		if server.Leader() == 0 {
			if err := server.Process(ctx, now); err != nil && ctx.Err() == nil {
				return fmt.Errorf("elect: %w", err)
			}
		}
	}
}

// Client implements controlplane.Backend.
func (s *embedded) Client() (*clientv3.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.servers.KV == nil {
		return nil, fmt.Errorf("%v: not running", s.description)
	}
	return s.clients.Add(etcdclient.InProcess(s.servers))
}

// Defragment implements controlplane.Defragmenting.
func (s *embedded) Defragment(context.Context) error {
	s.mu.Lock()
	running := s.etcd
	s.mu.Unlock()
	if running == nil {
		return fmt.Errorf("%v: not running", s.description)
	}
	if err := running.Server.Backend().Defrag(); err != nil {
		return fmt.Errorf("%v: %w: is there room for a second copy of its contents?", s.description, err)
	}
	return nil
}

// Stop implements controlplane.Backend.
func (s *embedded) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true
	s.clients.Close()
	s.servers = etcdclient.Servers{}
	if s.unkeep != nil {
		s.unkeep()
	}
	s.calls.finish(ctx)
	if err := s.stop(ctx); err != nil {
		return fmt.Errorf("%v: %w", s.description, err)
	}
	return nil
}

func (s *embedded) stop(ctx context.Context) error {
	done := s.abandoned
	if s.etcd != nil {
		done = make(chan struct{})
		go func() {
			defer close(done)
			// A compaction or a defragmentation ends first: they read what Close
			// closes. If etcd failed they may never end.
			if s.failure.err() == nil {
				s.keeping.Wait()
			}
			s.etcd.Close()
		}()
	}
	if done == nil || s.etcd == nil && s.failure.err() != nil {
		// When a goroutine of etcd's start has failed, the rest of the start
		// waits for it for ever.
		return s.unlock()
	}
	if s.failure.err() != nil {
		limited, cancel := context.WithTimeout(ctx, failedStop)
		defer cancel()
		ctx = limited
	}
	select {
	case <-done:
		s.etcd, s.abandoned = nil, nil
		return s.unlock()
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("stop: %w", context.Cause(ctx)), s.failure.err())
	}
}

func (s *embedded) unlock() error {
	lock := s.lock
	s.lock = nil
	return lock.Release()
}
