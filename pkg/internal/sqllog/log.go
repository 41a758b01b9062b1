package sqllog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/etcdapi"
	"github.com/sailplane-dev/sailplane/pkg/internal/revision"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	// rowsPerCheck is how many rows are read between checks that the caller still waits.
	rowsPerCheck = 256
	// readTimeout is how long a read may take that no caller bounds.
	readTimeout = 30 * time.Second
	// retryAfter is how long the follower waits after an error of the database.
	retryAfter = 250 * time.Millisecond
)

// log is a revision.Log in a database that servers share. Reads ask the database. The follower
// gets what this server wrote at once, and what others wrote when the database says that there
// is something, or when a read has seen it.
type log struct {
	db     Database
	follow revision.Follower
	writer *writer
	keeper *keeper
	woken  chan struct{} // there may be changes that the follower has not
	stop   chan struct{}
	end    context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// told is the last revision that the follower has, and seen where the log stood when this
	// server last looked.
	told    int64
	seen    Position
	heard   int64     // the last revision that the database told of
	writing bool      // the writer looks at what was heard when it is done
	dropped time.Time // when this server last dropped history
	recent  revision.Recent
	counts  revision.Counts
}

// defaultHistoryBytes is how much history is kept unless told otherwise.
const defaultHistoryBytes = 256 << 20

// Backend serves the log in a database, which it opens when it starts and then closes. At most so
// many bytes of history are kept; 0: 256 MiB. Revisions go on above those that are lost; 0: none are. The
// opened database has its tables.
func Backend(name string, historyBytes, lost int64, database func(context.Context) (Database, error)) *etcdapi.Backend {
	return &etcdapi.Backend{
		Name: name,
		Open: func(ctx context.Context, follow revision.Follower) (revision.Log, error) {
			db, err := database(ctx)
			if err != nil {
				return nil, err
			}
			if lost > 0 {
				if err := db.Skip(ctx, lost+1); err != nil {
					return nil, errors.Join(fmt.Errorf("go on above revision %d: %w", lost, err), db.Close())
				}
			}
			l, err := open(ctx, db, cmp.Or(historyBytes, defaultHistoryBytes), follow)
			if err != nil {
				return nil, errors.Join(err, db.Close())
			}
			return l, nil
		},
	}
}

// open starts a log.
func open(ctx context.Context, db Database, historyBytes int64, follow revision.Follower) (*log, error) {
	at, err := db.Position(ctx)
	if err != nil {
		return nil, fmt.Errorf("read where the log stands: %w", err)
	}
	// Not the opening's context: what runs ends with Close.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	l := &log{
		db: db, follow: follow, woken: make(chan struct{}, 1), stop: make(chan struct{}), end: end,
		told: at.Current, seen: at, dropped: time.Now(),
	}
	l.writer = &writer{log: l, queue: make(chan *request), stopped: make(chan struct{})}
	l.keeper = &keeper{log: l, limit: historyBytes, due: make(chan struct{}, 1)}
	l.work.Go(func() { l.writer.run(life, l.stop) })
	l.work.Go(func() { l.listen(life) })
	l.work.Go(func() { l.tail(life) })
	l.work.Go(func() { l.keeper.run(life) })
	return l, nil
}

// Append implements revision.Log.
func (l *log) Append(ctx context.Context, changes []revision.Change) (revision.Result, error) {
	r := &request{changes: changes, done: make(chan struct{})}
	if err := l.writer.submit(ctx, r); err != nil {
		return revision.Result{}, err
	}
	return r.result, r.err
}

// begin and wrote are around a transaction of the writer. wrote hands its events on, unless the
// follower lacks some before it.
func (l *log) begin() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = true
}

func (l *log) wrote(after int64, events []*revision.Event, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writing = false
	if len(events) > 0 && err == nil && l.told == after {
		l.tell(events, events[len(events)-1].KV.Mod)
	}
	// After an error it may be in the database.
	if err != nil || l.told < max(l.heard, after+int64(len(events))) {
		signal.Wake(l.woken)
	}
}

// tell hands events on, which are complete up to a revision. The caller holds the lock.
func (l *log) tell(events []*revision.Event, through int64) {
	for _, e := range events {
		l.recent.Put(e.KV.Key, revision.LatestOf(e))
		l.counts.Apply(e)
		l.seen.History += historyOf(e)
	}
	l.follow(l.told, events, through)
	l.told = through
	l.seen.Current = max(l.seen.Current, through)
	l.keeper.look(l.seen)
}

// lose goes on at a position before which there are changes that cannot be told. The caller holds
// the lock.
func (l *log) lose(at Position) {
	l.recent, l.counts = revision.Recent{}, revision.Counts{}
	l.told, l.seen, l.heard = at.Current, at, at.Current
	l.follow(at.Current, nil, at.Current)
}

// errLost is why a database is not read: it has failed over to a replica that lacked the last
// commits, or is restored from a backup.
var errLost = errors.New("the database lacks changes that it had committed")

// reading returns the last revision that is known for certain, before a read.
func (l *log) reading() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.told
}

// saw takes in where the log stood at a read that began when a revision was known. What the follower
// has not is fetched.
func (l *log) saw(at Position, known int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.Current < known {
		signal.Wake(l.woken)
		return errLost
	}
	if at.Current >= l.seen.Current {
		l.seen = at
	}
	if at.Current > l.told {
		signal.Wake(l.woken)
	}
	return nil
}

// listen waits for writes of other servers.
func (l *log) listen(ctx context.Context) {
	missed := false
	for ctx.Err() == nil {
		at, err := l.db.Wait(ctx)
		if err != nil {
			missed = true
			l.pause(ctx)
			continue
		}
		if missed {
			at, missed = 0, false
		}
		l.mu.Lock()
		l.heard = max(l.heard, at)
		if at == 0 || at > l.told && !l.writing {
			signal.Wake(l.woken)
		}
		l.mu.Unlock()
	}
}

func (l *log) pause(ctx context.Context) {
	select {
	case <-time.After(retryAfter):
	case <-ctx.Done():
	}
}

// tail gives the follower what it lacks.
func (l *log) tail(ctx context.Context) {
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.woken:
		}
		err := l.catchUp(ctx)
		if err != nil && ctx.Err() == nil {
			if !failing {
				klog.FromContext(ctx).Error(err, "Watches wait for the database; will retry")
			}
			l.pause(ctx)
			signal.Wake(l.woken)
		}
		failing = err != nil
	}
}

// catchUp reads what the follower lacks, and hands it on.
func (l *log) catchUp(ctx context.Context) error {
	for {
		l.mu.Lock()
		told := l.told
		l.mu.Unlock()
		events, through, at, err := l.untold(ctx, told)
		if errors.Is(err, errLost) {
			klog.FromContext(ctx).Error(err, "Revisions go on above those that were lost, and watches begin anew",
				"newest", at.Current, "seen", told)
			if err := l.db.Skip(ctx, told); err != nil {
				return err
			}
			continue
		}
		gone := errors.Is(err, revision.ErrCompacted)
		if err != nil && !gone {
			return err
		}
		l.mu.Lock()
		switch {
		case l.told != told: // the writer was faster
		case gone:
			l.lose(at)
		case through > told:
			l.tell(events, through)
		}
		done := l.told >= at.Current
		l.mu.Unlock()
		if done {
			return nil
		}
	}
}

// untold reads changes that the follower lacks. A database that does not answer is asked again.
func (l *log) untold(ctx context.Context, told int64) ([]*revision.Event, int64, Position, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return l.changes(ctx, revision.Span{End: revision.NoEnd}, told)
}

// Close implements revision.Log.
func (l *log) Close(context.Context) error {
	close(l.stop)
	<-l.writer.stopped
	l.end()
	l.work.Wait()
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	return l.db.Close()
}
