package election_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	typedcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/sailplane-dev/sailplane/pkg/internal/election"
)

// server is an API server with one Lease.
type server struct {
	mu       sync.Mutex
	version  int
	stored   *coordinationv1.Lease
	watchers []*watch.RaceFreeFakeWatcher
	terms    atomic.Int64
}

// client is one of a server, which may be cut off from it.
type client struct {
	typedcoordinationv1.LeaseInterface
	server *server
	cut    atomic.Bool
}

var errCut = errors.New("the network is down")

func (c *client) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.cut.Load():
		return nil, errCut
	case s.stored == nil:
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "work")
	}
	return s.stored.DeepCopy(), nil
}

func (c *client) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.cut.Load():
		return nil, errCut
	case s.stored != nil:
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), "work")
	}
	return s.store(l, watch.Added), nil
}

func (c *client) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.cut.Load():
		return nil, errCut
	case s.stored == nil || s.stored.ResourceVersion != l.ResourceVersion:
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "work", nil)
	}
	return s.store(l, watch.Modified), nil
}

func (c *client) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.cut.Load() {
		return nil, errCut
	}
	w := watch.NewRaceFreeFake()
	w.Modify(s.stored.DeepCopy())
	s.watchers = append(s.watchers, w)
	return w, nil
}

// store keeps a Lease. The caller holds the lock.
func (s *server) store(l *coordinationv1.Lease, event watch.EventType) *coordinationv1.Lease {
	s.version++
	s.stored = l.DeepCopy()
	s.stored.ResourceVersion = strconv.Itoa(s.version)
	for _, w := range s.watchers {
		if !w.IsStopped() {
			w.Action(event, s.stored.DeepCopy())
		}
	}
	return s.stored.DeepCopy()
}

// lease is one that a holder may have.
func (s *server) lease(c *client, identity string) *election.Lease {
	return election.New(c, "work", identity, func(context.Context) (election.Term, error) {
		return election.Term{Key: "term", Revision: s.terms.Add(1)}, nil
	})
}

// TestRelease: who waits begins as soon as the work of the holder has ended, and not before its
// last request has been answered.
func TestRelease(t *testing.T) { synctest.Test(t, testRelease) }

func testRelease(t *testing.T) {
	t.Helper()
	s := &server{}
	first, second := s.lease(&client{server: s}, "a"), s.lease(&client{server: s}, "b")
	ctx, end := context.WithCancel(t.Context())
	working := make(chan struct{})
	var answer func()
	var ended sync.WaitGroup
	ended.Go(func() {
		err := first.Hold(ctx, func(ctx context.Context) error {
			_, answered, err := election.From(ctx).Send()
			answer = answered
			close(working)
			<-ctx.Done()
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-working
	var isAnswered atomic.Bool
	began := make(chan bool, 1)
	waiting, stop := context.WithCancel(t.Context())
	ended.Go(func() {
		err := second.Hold(waiting, func(ctx context.Context) error {
			began <- isAnswered.Load()
			<-ctx.Done()
			return ctx.Err()
		})
		if err != nil {
			t.Error(err)
		}
	})
	end()
	select {
	case <-began:
		t.Error("the next one begins while a request is on its way")
	case <-time.After(300 * time.Millisecond): // it would have been told by now
	}
	released := time.Now()
	isAnswered.Store(true)
	answer()
	if !<-began {
		t.Error("the next one begins before the request is answered")
	}
	if waited := time.Since(released); waited > 9*time.Second {
		t.Errorf("it begins %v after the release: the Lease has run out", waited)
	}
	stop()
	ended.Wait()
	if _, _, err := first.Send(); !errors.Is(err, election.ErrLost) {
		t.Errorf("who has released the Lease may send: %v", err)
	}
}

// TestCutOff: a holder that cannot renew its Lease stops in time, and another one begins after that,
// in a later term.
func TestCutOff(t *testing.T) { synctest.Test(t, testCutOff) }

func testCutOff(t *testing.T) {
	t.Helper()
	s := &server{}
	lost := &client{server: s}
	first, second := s.lease(lost, "a"), s.lease(&client{server: s}, "b")
	ctx, stop := context.WithCancel(t.Context())
	terms := make(chan election.Term, 2)
	var isOver atomic.Bool
	work := func(over bool) func(context.Context) error {
		return func(ctx context.Context) error {
			term, answered, err := election.From(ctx).Send()
			if err != nil {
				return err
			}
			answered()
			terms <- term
			if over != isOver.Load() {
				t.Error("both work")
			}
			<-ctx.Done()
			isOver.Store(true)
			return ctx.Err()
		}
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := first.Hold(ctx, work(false)); err != nil {
			t.Error(err)
		}
	})
	one := <-terms
	lost.cut.Store(true)
	ended.Go(func() {
		if err := second.Hold(ctx, work(true)); err != nil {
			t.Error(err)
		}
	})
	two := <-terms
	if two.Revision <= one.Revision {
		t.Errorf("term %v follows on %v", two, one)
	}
	if _, _, err := first.Send(); !errors.Is(err, election.ErrLost) {
		t.Errorf("who has lost the Lease may send: %v", err)
	}
	stop()
	ended.Wait()
}

// TestToldInTime: work that loses its Lease is told to end while it may still send what ends it.
func TestToldInTime(t *testing.T) { synctest.Test(t, testToldInTime) }

func testToldInTime(t *testing.T) {
	t.Helper()
	c := &client{server: &server{}}
	l := c.server.lease(c, "a")
	err := l.Hold(t.Context(), func(ctx context.Context) error {
		c.cut.Store(true)
		<-ctx.Done()
		_, answered, err := l.Send()
		if err != nil {
			t.Errorf("it is told to end, and may send nothing any more: %v", err)
			return nil
		}
		answered()
		return ctx.Err()
	})
	if err != nil {
		t.Error(err)
	}
}

// TestStubbornWork: work that goes on after the time of its Lease sends nothing, as that of a process which
// was stopped and goes on.
func TestStubbornWork(t *testing.T) { synctest.Test(t, testStubbornWork) }

func testStubbornWork(t *testing.T) {
	t.Helper()
	c := &client{server: &server{}}
	l := c.server.lease(c, "a")
	err := l.Hold(t.Context(), func(context.Context) error {
		c.cut.Store(true)
		time.Sleep(11 * time.Second)
		if _, _, err := l.Send(); !errors.Is(err, election.ErrLost) {
			t.Errorf("it may send: %v", err)
		}
		return errors.New("ended late")
	})
	if err != nil {
		t.Error(err)
	}
}
