// Package election has one of several servers do work: the one that holds a Lease.
//
// It agrees with k8s.io/client-go/tools/leaderelection on what a Lease says, so that servers with
// either elect one of them. Three things are different. Who waits watches the Lease, in place of
// asking for it: the next one begins as soon as it is released. A holder that was stopped for a
// while, as by SIGSTOP, sends nothing after its time, and what it had sent changes nothing: its
// requests are bound to a term, which the next holder ends. The Lease is released when the work
// and all its requests have ended, and not before.
package election

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const (
	// duration is how long others leave a Lease alone that nobody renews.
	duration = 10 * time.Second
	// patience is how long its holder tries to renew it before the work ends. The work has the
	// rest of the duration to do so.
	patience = 7 * time.Second
	// pause is how often it is renewed, and the pause after an error.
	pause = 2 * time.Second
	// releaseTimeout bounds the release: others wait for the duration then.
	releaseTimeout = 2 * time.Second
)

// ErrLost is why requests are not sent: another server may hold the Lease.
var ErrLost = errors.New("the Lease of this work is lost")

// Lease is one that this process may hold.
type Lease struct {
	leases         typedcoordinationv1.LeaseInterface
	name, identity string
	// begin begins a term, and returns what tells it from others.
	begin func(context.Context) (Term, error)

	mu    sync.Mutex
	held  *coordinationv1.Lease // as it was written last
	until time.Time             // others surely wait until then
	term  Term
	sent  sync.WaitGroup // requests of the work
}

// Term is the time that one holder has. The storage has a key for it, and the revision that it has
// is of this term.
type Term struct {
	Key      string
	Revision int64
}

// New returns a Lease that is not held. begin is called when it has been acquired, before the work.
func New(leases typedcoordinationv1.LeaseInterface, name, identity string, begin func(context.Context) (Term, error)) *Lease {
	return &Lease{leases: leases, name: name, identity: identity, begin: begin}
}

// Hold waits for the Lease, works while it is held, and releases it. It returns when the context
// ends or the Lease is lost, and the work has ended; with the error of the work. Work that returns
// nil is done, and the Lease is kept.
func (l *Lease) Hold(ctx context.Context, work func(context.Context) error) error {
	if !l.acquire(ctx) {
		return nil
	}
	log := klog.FromContext(ctx).WithValues("lease", l.name, "identity", l.identity)
	log.Info("Acquired the Lease")
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	renewing := make(chan struct{})
	go func() {
		defer close(renewing)
		if err := l.renew(life); err != nil {
			log.Info("Lost the Lease", "cause", err)
			end(err)
		}
	}()
	err := work(With(life, l))
	if err != nil && life.Err() != nil {
		err = nil // it was told to end
	} else if err == nil {
		<-life.Done()
	}
	end(nil)
	<-renewing
	l.release(ctx)
	return err
}

// acquire returns true when the Lease is held, and false when the context has ended.
func (l *Lease) acquire(ctx context.Context) bool {
	var seen observation
	for ctx.Err() == nil {
		err := l.try(ctx, &seen)
		switch {
		case err == nil && l.holds():
			return true
		case err == nil, apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
			continue // another one was faster, or something changed
		case ctx.Err() == nil:
			klog.FromContext(ctx).V(2).Info("Cannot acquire the Lease yet; will retry", "lease", l.name, "cause", err)
		}
		sleep(ctx, pause)
	}
	return false
}

// observation is a state of the Lease, and when this process saw it first: clocks of other machines
// say nothing.
type observation struct {
	version string
	at      time.Time
}

func (o *observation) see(l *coordinationv1.Lease) {
	if o.version != l.ResourceVersion {
		*o = observation{l.ResourceVersion, time.Now()}
	}
}

// left is how long others leave the Lease alone.
func (o *observation) left(l *coordinationv1.Lease) time.Duration {
	if ptr.Deref(l.Spec.HolderIdentity, "") == "" {
		return 0
	}
	return time.Until(o.at.Add(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second))
}

// try takes the Lease if it is free, and else returns when that may have changed.
func (l *Lease) try(ctx context.Context, seen *observation) error {
	begun := time.Now()
	lease, err := l.leases.Get(ctx, l.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: l.name}}
		lease, err = l.leases.Create(ctx, l.taken(fresh), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		return l.took(ctx, lease, begun)
	}
	if err != nil {
		return err
	}
	seen.see(lease)
	if seen.left(lease) > 0 && *lease.Spec.HolderIdentity != l.identity {
		return l.await(ctx, lease, seen)
	}
	begun = time.Now()
	if lease, err = l.leases.Update(ctx, l.taken(lease), metav1.UpdateOptions{}); err != nil {
		return err
	}
	return l.took(ctx, lease, begun)
}

// taken returns the Lease as this process holds it.
func (l *Lease) taken(lease *coordinationv1.Lease) *coordinationv1.Lease {
	now := metav1.NowMicro()
	lease = lease.DeepCopy()
	if ptr.Deref(lease.Spec.HolderIdentity, "") != l.identity {
		lease.Spec.LeaseTransitions = ptr.To(ptr.Deref(lease.Spec.LeaseTransitions, -1) + 1)
		lease.Spec.AcquireTime = &now
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = &l.identity, &now
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(duration / time.Second))
	return lease
}

// took begins a term with a Lease that was written by a request begun at a time.
func (l *Lease) took(ctx context.Context, lease *coordinationv1.Lease, begun time.Time) error {
	term, err := l.begin(ctx)
	if err != nil {
		return err // the next try takes the Lease again
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held, l.until, l.term = lease, begun.Add(duration), term
	return nil
}

func (l *Lease) holds() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until)
}

// await returns when the Lease is free, or its holder has not renewed it in time, or nothing more
// is heard of it.
func (l *Lease) await(ctx context.Context, lease *coordinationv1.Lease, seen *observation) error {
	w, err := l.leases.Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, l.name).String(), ResourceVersion: lease.ResourceVersion,
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	late := time.NewTimer(seen.left(lease))
	defer late.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return nil
		case event, open := <-w.ResultChan():
			changed, ok := event.Object.(*coordinationv1.Lease)
			if !open || !ok {
				sleep(ctx, pause/4)
				return nil
			}
			seen.see(changed)
			left := seen.left(changed)
			if left <= 0 || event.Type == watch.Deleted {
				return nil
			}
			late.Reset(left)
		}
	}
}

// renew renews the Lease until the context ends, and returns nil then, or why it cannot.
func (l *Lease) renew(ctx context.Context) error {
	var last error
	next := pause
	for {
		if sleep(ctx, next); isDone(ctx) {
			return nil
		}
		l.mu.Lock()
		left := time.Until(l.until.Add(patience - duration))
		l.mu.Unlock()
		if left <= 0 {
			return errors.Join(ErrLost, last)
		}
		try, cancel := context.WithTimeout(ctx, left)
		last = l.write(try, l.taken)
		cancel()
		if errors.Is(last, ErrLost) {
			return last
		}
		if next = pause; last != nil {
			next = min(pause/4, left)
		}
	}
}

// write changes the Lease that this process holds, or returns ErrLost if another one does.
func (l *Lease) write(ctx context.Context, change func(*coordinationv1.Lease) *coordinationv1.Lease) error {
	l.mu.Lock()
	held := l.held
	l.mu.Unlock()
	begun := time.Now()
	lease, err := l.leases.Update(ctx, change(held), metav1.UpdateOptions{})
	if apierrors.IsConflict(err) { // an earlier try may have been done without an answer
		if held, err = l.leases.Get(ctx, l.name, metav1.GetOptions{}); err != nil {
			return err
		}
		if ptr.Deref(held.Spec.HolderIdentity, "") != l.identity {
			return ErrLost
		}
		begun = time.Now()
		lease, err = l.leases.Update(ctx, change(held), metav1.UpdateOptions{})
	}
	if apierrors.IsNotFound(err) {
		return ErrLost
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = lease
	if !l.until.IsZero() {
		l.until = begun.Add(duration)
	}
	return nil
}

// release lets others have the Lease, when the last request of the work has been answered.
func (l *Lease) release(ctx context.Context) {
	l.mu.Lock()
	left := time.Until(l.until)
	l.until = time.Time{} // so that no further one is sent
	l.mu.Unlock()
	if left <= 0 {
		return
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		l.sent.Wait()
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(left, releaseTimeout))
	defer cancel()
	select {
	case <-answered:
	case <-ctx.Done():
		return // others wait until it has run out
	}
	err := l.write(ctx, func(held *coordinationv1.Lease) *coordinationv1.Lease {
		now := metav1.NowMicro()
		freed := held.DeepCopy()
		freed.Spec.HolderIdentity, freed.Spec.RenewTime, freed.Spec.LeaseDurationSeconds = nil, &now, ptr.To(int32(1))
		return freed
	})
	if err != nil && !errors.Is(err, ErrLost) {
		klog.FromContext(ctx).Info("Did not release the Lease: others wait until it has run out", "lease", l.name, "cause", err)
	}
}

// Send is called before a request of the work that changes something. The request is bound to
// the term, and answered is called when it has been answered.
func (l *Lease) Send() (term Term, answered func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		return Term{}, nil, ErrLost
	}
	l.sent.Add(1)
	return l.term, l.sent.Done, nil
}

type (
	leaseKey struct{}
	termKey  struct{}
)

// With returns a context whose requests are the work's of a Lease.
func With(ctx context.Context, l *Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// From returns the Lease of a context; nil: its requests are of no such work.
func From(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

// Bind returns a context whose writes are done in a term only.
func Bind(ctx context.Context, t Term) context.Context { return context.WithValue(ctx, termKey{}, t) }

// Bound returns the term of a context.
func Bound(ctx context.Context) (t Term, ok bool) {
	t, ok = ctx.Value(termKey{}).(Term)
	return t, ok
}

func isDone(ctx context.Context) bool { return ctx.Err() != nil }

// sleep returns after a while, or when the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
