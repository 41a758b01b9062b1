package polled

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// life is a store while somebody uses it.
type life struct {
	config *Config
	opened *Opened
	ctx    context.Context //nolint:containedctx // of the reads, which nobody's request owns
	end    context.CancelFunc
	work   sync.WaitGroup

	followed *followed // nil: the source is read

	mu       sync.Mutex
	passes   map[Query]*passes
	slots    chan struct{} // for calls of the function
	watchers int
	unpoll   context.CancelFunc
	told     string // the error that was logged

	last source.Last

	// order has what was read first be written first: a read of more than one object runs
	// alone.
	order   sync.RWMutex
	objects objects
}

func newLife(c *Config, o *Opened) *life {
	ctx, end := context.WithCancel(context.Background())
	l := &life{
		config: c, opened: o, ctx: ctx, end: end, passes: map[Query]*passes{},
		slots: make(chan struct{}, maxCalls), objects: objects{all: map[string]runtime.Object{}},
		last: source.Last{Stale: c.Stale},
	}
	if c.Follow != nil {
		l.followed = &followed{life: l, changed: make(chan struct{})}
		l.work.Go(l.followed.run)
	}
	return l
}

func (l *life) close() {
	l.mu.Lock()
	l.end()
	l.mu.Unlock()
	l.work.Wait()
	l.opened.Close()
}

// passes are the reads for a query: the one that runs, and the one after it.
type passes struct{ running, next *pass }

// pass is a read of the source.
type pass struct {
	done chan struct{}
	err  error
}

// refresh returns when the store has what the source said after this call or, with one that is
// followed, what it said last. If that fails, and the declaration allows it, what there was has to
// do.
func (l *life) refresh(ctx context.Context, q Query) error {
	var err error
	if l.followed != nil {
		err = l.followed.wait(ctx)
	} else {
		err = l.pass(ctx, q)
	}
	if err == nil || ctx.Err() != nil || l.ctx.Err() != nil {
		return err
	}
	if l.last.Answers(ctx, err) {
		return nil
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("%s cannot be read: %v", l.config.Resource, err))
}

// pass reads the source. Those who ask meanwhile share one read, which begins after they asked.
func (l *life) pass(ctx context.Context, q Query) error {
	if l.config.Stale > 0 {
		q = Query{} // what is good for one is there for all
	}
	l.mu.Lock()
	if l.ctx.Err() != nil {
		l.mu.Unlock()
		return source.ErrClosed
	}
	p := &pass{done: make(chan struct{})}
	switch now := l.passes[q]; {
	case now == nil:
		l.passes[q] = &passes{running: p}
		l.work.Go(func() { l.run(q, p) })
	case now.next != nil:
		p = now.next
	default:
		now.next = p
	}
	l.mu.Unlock()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// run reads for a query as long as somebody waits for it.
func (l *life) run(q Query, p *pass) {
	for p != nil {
		p.err = l.read(q)
		l.mu.Lock()
		now := l.passes[q]
		if now.running, now.next = now.next, nil; now.running == nil {
			delete(l.passes, q)
		}
		close(p.done)
		p = now.running
		l.mu.Unlock()
	}
}

// read has the store have what the source says.
func (l *life) read(q Query) error {
	if q.Name == "" {
		l.order.Lock()
		defer l.order.Unlock()
	} else {
		l.order.RLock()
		defer l.order.RUnlock()
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.config.Timeout, l.late())
	defer cancel()
	found, err := l.ask(ctx, q)
	if err == nil {
		err = l.write(ctx, q, found)
	}
	l.tell(err)
	if err == nil && q == (Query{}) {
		l.last.Good(begun)
	}
	return err
}

// late is the error of a source that does not answer.
func (l *life) late() error {
	return fmt.Errorf("no answer in %v: %w", l.config.Timeout, context.DeadlineExceeded)
}

// maxCalls is how many calls of the function may run, those too that nobody waits for any more.
const maxCalls = 16

// ask calls the function of the source. One that does not come back in time is left alone.
func (l *life) ask(ctx context.Context, q Query) ([]runtime.Object, error) {
	type answer struct {
		found []runtime.Object
		err   error
	}
	select {
	case l.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %d calls of the function did not come back", context.Cause(ctx), maxCalls)
	}
	answers := make(chan answer, 1)
	go func() {
		defer func() { <-l.slots }()
		defer func() {
			if why := recover(); why != nil {
				answers <- answer{err: fmt.Errorf("panic: %v", why)}
			}
		}()
		found, err := l.config.Read(ctx, q)
		answers <- answer{found, err}
	}()
	select {
	case a := <-answers:
		return a.found, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// tell reports the error of a read, and logs it once.
func (l *life) tell(err error) {
	if l.ctx.Err() != nil {
		return
	}
	l.config.Report(err)
	said := ""
	if err != nil {
		said = err.Error()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if said != l.told && said != "" {
		klog.FromContext(l.ctx).Error(err, "The source of a resource failed", "resource", l.config.Resource)
	}
	l.told = said
}

// watched has the source be read again and again until the last watcher is gone.
func (l *life) watched() (unwatch func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchers++; l.watchers == 1 && l.followed == nil && l.ctx.Err() == nil {
		ctx, end := context.WithCancel(l.ctx)
		l.unpoll = end
		l.work.Go(func() { l.poll(ctx) })
	}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.watchers--; l.watchers == 0 && l.unpoll != nil {
			l.unpoll()
		}
	}
}

func (l *life) poll(ctx context.Context) {
	ticker := time.NewTicker(l.config.Every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			_ = l.refresh(ctx, Query{}) // it was logged, and who watches waits for better times
		case <-ctx.Done():
			return
		}
	}
}

// knows returns an error for a version that is none of this store.
func (l *life) knows(ctx context.Context, version string) error {
	at, err := l.opened.Versioner().ParseResourceVersion(version)
	if err != nil || at == 0 {
		return err
	}
	current, err := l.opened.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	if at < l.opened.First || at > current {
		return expired(version)
	}
	return nil
}
