package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/metrics"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// defaultQuota is the size of the database at which etcd refuses writes: the
	// largest that etcd recommends.
	defaultQuota = 8 << 30
	// defaultHistory is how much history is kept at most. The file is mapped into memory,
	// and has the objects and some 16 MiB more.
	defaultHistory = 48 << 20
	// keepInterval is how often the size is checked: in less, a fast disk writes about as
	// much as is kept.
	keepInterval = 250 * time.Millisecond
	// minSamples sets the smallest sample: this part of the history.
	minSamples = 64
	// minFree is how much of a file must be free to make rewriting it
	// worthwhile.
	minFree = 64 << 20
	// defragPause is the pause before a file is rewritten again, unless room is
	// needed: nothing is read or written during a rewrite.
	defragPause = time.Minute
	// retryRoom is the pause after a search for room that found none.
	retryRoom = 5 * time.Second
)

// keeper keeps an etcd from filling up. etcd drops history only when told to, and
// gives none of its file back: the API server tells it every few minutes, and a disk
// writes gigabytes meanwhile. At its quota etcd refuses all writes until an operator
// compacts, defragments and disarms the alarm. The keeper does all three, before the
// quota is reached and after.
type keeper struct {
	server  *etcdserver.EtcdServer
	dir     string
	quota   int64
	history int64
	wake    chan struct{}
	// full: the last search for room found none.
	full atomic.Bool
	// historyBytes is how many bytes were written since history begins, and compacted when
	// history was last dropped.
	historyBytes atomic.Int64
	compacted    atomic.Int64 // in nanoseconds since 1970

	written, inUse, keptFrom int64 // what was written since the start, and before history begins
	first                    int64 // the revision at which history begins
	samples                  []sample
	defragged, searched      time.Time
	searchedAt, searchedUse  int64 // the revision, and the bytes in use after it
}

// sample is how much was written before a revision.
type sample struct{ revision, written int64 }

func newKeeper(server *etcdserver.EtcdServer, e Embedded, dir string) *keeper {
	quota := cmp.Or(e.QuotaBytes, defaultQuota)
	k := &keeper{
		server: server, dir: dir, quota: quota, history: cmp.Or(e.HistoryBytes, min(defaultHistory, quota/4)),
		wake: make(chan struct{}, 1), inUse: server.Backend().SizeInUse(), first: server.KV().FirstRev(),
	}
	k.compacted.Store(time.Now().UnixNano())
	return k
}

// run looks after the etcd until the context ends.
func (k *keeper) run(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.wake:
		}
		k.check(ctx)
	}
}

// measured returns what the metrics report.
func (k *keeper) measured() metrics.Storage {
	history, file := k.historyBytes.Load(), k.server.Backend().Size()
	return metrics.Storage{History: &history, File: &file, Compacted: time.Unix(0, k.compacted.Load())}
}

// refused wakes the keeper after etcd refused a write, and tells whether it may
// find room.
func (k *keeper) refused() bool {
	signal.Wake(k.wake)
	return !k.full.Load()
}

// check checks the size, and drops history or rewrites the file if needed.
func (k *keeper) check(ctx context.Context) {
	k.measure()
	size := k.server.Backend().Size()
	switch {
	case k.isAlarmed():
		k.makeRoom(ctx)
	case k.historyBytes.Load() > k.history:
		k.compact(ctx, k.horizon(k.history/2))
		fallthrough
	default:
		free := k.free()
		much := free > max(minFree, size/2) || size > k.quota/4*3 && free > k.quota/10
		if much && time.Since(k.defragged) > defragPause {
			k.defrag()
		}
	}
}

// measure notes how much was written until now.
func (k *keeper) measure() {
	inUse := k.server.Backend().SizeInUse()
	k.written += max(0, inUse-k.inUse)
	k.inUse = inUse
	now := sample{k.server.KV().Rev(), k.written}
	if n := len(k.samples); n < 2 || now.written-k.samples[n-2].written > k.history/minSamples {
		k.samples = append(k.samples, now)
	} else {
		k.samples[n-1] = now
	}
	k.forget(k.server.KV().FirstRev())
}

// forget stops counting bytes written before a revision: history begins there,
// whether it was compacted here or by age.
func (k *keeper) forget(compacted int64) {
	if compacted > k.first {
		k.first = compacted
		k.compacted.Store(time.Now().UnixNano())
	}
	for len(k.samples) > 1 && k.samples[1].revision <= k.first {
		k.samples = k.samples[1:]
	}
	if oldest := k.samples[0]; oldest.revision <= k.first {
		k.keptFrom = oldest.written
	}
	k.historyBytes.Store(k.written - k.keptFrom)
}

// horizon returns the first sample after which at most these bytes were written. If
// the last step wrote more, it is the newest.
func (k *keeper) horizon(bytes int64) sample {
	for _, s := range k.samples {
		if k.written-s.written <= bytes {
			return s
		}
	}
	return k.samples[len(k.samples)-1]
}

func (k *keeper) free() int64 { return k.server.Backend().Size() - k.server.Backend().SizeInUse() }

func (k *keeper) isAlarmed() bool {
	return slices.ContainsFunc(k.server.Alarms(), func(a *pb.AlarmMember) bool { return a.Alarm == pb.AlarmType_NOSPACE })
}

// compact drops the history before a sample, and returns when its pages are free. It
// returns false on failure; the next look tries again.
func (k *keeper) compact(ctx context.Context, to sample) bool {
	begun := time.Now()
	_, err := k.server.Compact(ctx, &pb.CompactionRequest{Revision: to.revision, Physical: true})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // by the API server, with a newer revision
		klog.V(2).InfoS("Could not drop history", "dir", k.dir, "revision", to.revision, "err", err)
		return false
	}
	// Pages that one transaction frees can be used after the next one.
	k.server.Backend().ForceCommit()
	k.server.Backend().ForceCommit()
	k.inUse = k.server.Backend().SizeInUse()
	k.forget(k.server.KV().FirstRev())
	klog.V(2).InfoS("Dropped history by size", "dir", k.dir, "revision", to.revision, "inUse", k.inUse, "took", time.Since(begun))
	return true
}

func (k *keeper) defrag() {
	begun, before := time.Now(), k.server.Backend().Size()
	k.defragged = begun
	if err := k.server.Backend().Defrag(); err != nil {
		klog.ErrorS(err, "Could not shrink the file: is there room for a second copy of its contents?", "dir", k.dir, "bytes", before)
		return
	}
	k.defragged = time.Now()
	klog.InfoS("Shrank the file", "dir", k.dir, "before", before, "after", k.server.Backend().Size(), "took", time.Since(begun))
}

// mayHaveRoom tells whether something changed since room was last looked for.
func (k *keeper) mayHaveRoom() bool {
	if time.Since(k.searched) <= retryRoom {
		return false
	}
	// Dropped pages that a reader still used are free after the next commit.
	k.server.Backend().ForceCommit()
	return k.server.KV().Rev() != k.searchedAt || k.server.Backend().SizeInUse() != k.searchedUse
}

// makeRoom drops all history and rewrites the file, and disarms the alarm if
// that was enough.
func (k *keeper) makeRoom(ctx context.Context) {
	if k.full.Load() && !k.mayHaveRoom() {
		return
	}
	newest := k.samples[len(k.samples)-1]
	if !k.compact(ctx, newest) {
		return
	}
	k.searched, k.searchedAt = time.Now(), newest.revision
	if k.free() > k.quota/20 {
		k.defrag()
	}
	size := k.server.Backend().Size()
	k.searchedUse = k.server.Backend().SizeInUse()
	full := size > k.quota/20*19
	if full != k.full.Swap(full) && full {
		klog.ErrorS(nil, "The storage is full of objects: delete some, or raise the quota", "dir", k.dir, "bytes", size,
			"quota", k.quota)
	}
	if full || !k.isAlarmed() {
		return
	}
	_, err := k.server.Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_DEACTIVATE, MemberID: uint64(k.server.MemberID()), Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil && ctx.Err() == nil {
		klog.ErrorS(err, "There is room again, but the alarm of etcd could not be disarmed", "dir", k.dir)
	}
}
