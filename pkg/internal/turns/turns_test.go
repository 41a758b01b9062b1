package turns_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

// TestOrder: users take turns, however many requests each has.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const busy, other = "busy", "jane"
		line := turns.New(1)
		first := line.Of(busy)
		first.Take(t.Context())
		var mu sync.Mutex
		var got []string
		for _, user := range []string{busy, busy, busy, other, other} {
			go func() {
				turn := line.Of(user)
				defer turn.End()
				turn.Take(t.Context())
				mu.Lock()
				defer mu.Unlock()
				got = append(got, user)
			}()
			synctest.Wait()
		}
		if len(got) > 0 {
			t.Fatalf("%s had a turn while another one lasted", got)
		}
		first.End()
		synctest.Wait()
		if diff := cmp.Diff([]string{busy, other, busy, other, busy}, got); diff != "" {
			t.Errorf("order of turns (-want +got):\n%s", diff)
		}
	})
}

// TestRest: whoever rests leaves the turn to others, and waits for it again.
func TestRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(1)
		one, two := line.Of("one"), line.Of("two")
		defer one.End()
		one.Rest()(t.Context()) // a request that never took a turn needs none
		two.Take(t.Context())
		resume := two.Rest()
		one.Take(t.Context())
		resumed := false
		go func() { resume(t.Context()); resumed = true }()
		synctest.Wait()
		if resumed {
			t.Error("a request went on while another had its turn")
		}
		one.End()
		synctest.Wait()
		if !resumed {
			t.Error("a request does not go on")
		}
		two.End()
		two.Take(t.Context()) // none is taken after the end
		three := line.Of("three")
		three.Take(t.Context())
		three.End()
	})
}

// TestBegunFirst: a request that has begun goes on before others of its user begin, and not
// before those of other users.
func TestBegunFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(1)
		begun, holder := line.Of("one"), line.Of("two")
		begun.Take(t.Context())
		resume := begun.Rest()
		holder.Take(t.Context())
		var mu sync.Mutex
		var got []string
		wait := func(name string, take func(context.Context), turn *turns.Turn) {
			go func() {
				defer turn.End()
				take(t.Context())
				mu.Lock()
				defer mu.Unlock()
				got = append(got, name)
			}()
			synctest.Wait()
		}
		other, new1, new2 := line.Of("three"), line.Of("one"), line.Of("one")
		wait("other", other.Take, other)
		wait("new", new1.Take, new1)
		wait("new", new2.Take, new2)
		wait("begun", resume, begun)
		holder.End()
		synctest.Wait()
		if diff := cmp.Diff([]string{"other", "begun", "new", "new"}, got); diff != "" {
			t.Errorf("order of turns (-want +got):\n%s", diff)
		}
	})
}

// TestYield: while the server computes for a request, only its own requests have turns.
func TestYield(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(2)
		const server = "of the server"
		begun, yielding := line.Of("other"), line.Of("one")
		begun.Take(t.Context())
		goOn := begun.Rest()
		yielding.Take(t.Context())
		resume := yielding.Yield()
		got := make(chan string, 4)
		ask := func(name string, turn *turns.Turn, take func(context.Context)) {
			go func() {
				defer turn.End()
				take(t.Context())
				got <- name
			}()
		}
		ask("begun", begun, goOn)
		for name, turn := range map[string]*turns.Turn{server: line.Own("server"), "new": line.Of("one"), "another's": line.Of("two")} {
			ask(name, turn, turn.Take)
		}
		synctest.Wait()
		if first := <-got; first != server || len(got) > 0 {
			t.Errorf("%q had its turn first, and then %d while the server computes", first, len(got))
		}
		resume(t.Context())
		yielding.End()
		synctest.Wait()
		if len(got) != 3 {
			t.Errorf("%d of 3 had their turn when the server was ready", len(got))
		}

		long, next := line.Of("one"), line.Of("two")
		long.Take(t.Context())
		resume = long.Yield()
		began := time.Now()
		next.Take(t.Context())
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the next one begins after %s", waited)
		}
		next.End()
		resume(t.Context())
		long.End()
	})
}

// TestAwait: while the server works for a request, no other of its user begins, but those
// that have begun go on, and others' have their turns. It lasts as long as a turn at most.
func TestAwait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(1)
		began := time.Now()
		begun, awaiting := line.Of("one"), line.Of("one")
		begun.Take(t.Context())
		goOn := begun.Rest()
		awaiting.Take(t.Context())
		resume := awaiting.Await()
		var mu sync.Mutex
		waited := map[string]time.Duration{}
		for name, turn := range map[string]*turns.Turn{"new": line.Of("one"), "other": line.Of("two")} {
			go func() {
				defer turn.End()
				turn.Take(t.Context())
				mu.Lock()
				defer mu.Unlock()
				waited[name] = time.Since(began)
			}()
		}
		synctest.Wait()
		goOn(t.Context())
		begun.End()
		time.Sleep(time.Millisecond)
		resume(t.Context())
		awaiting.End()
		synctest.Wait()
		if diff := cmp.Diff(map[string]time.Duration{"other": 0, "new": time.Millisecond}, waited); diff != "" {
			t.Errorf("waits for turns (-want +got):\n%s", diff)
		}

		long, next := line.Of("one"), line.Of("one")
		long.Take(t.Context())
		resume = long.Await()
		began = time.Now()
		next.Take(t.Context())
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the next one begins after %s", waited)
		}
		next.End()
		resume(t.Context())
		long.End()

		small := line.Of("one")
		small.Await() // it wants no turn, so nobody waits for it
		last := line.Of("one")
		began = time.Now()
		last.Take(t.Context())
		last.End()
		if waited := time.Since(began); waited > 0 {
			t.Errorf("a request waits for %s because of a small one", waited)
		}
		var none *turns.Turn
		none.Await()(t.Context())
	})
}

// TestTurnsEnd: a turn ends by itself after a while, and who waits no longer is out of the line.
func TestTurnsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(1)
		began := time.Now()
		long, gone, next := line.Of("one"), line.Of("two"), line.Of("two")
		long.Take(t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		gone.Take(ctx)
		if waited := time.Since(began); waited != time.Millisecond {
			t.Errorf("who gave up waited %s", waited)
		}
		next.Take(t.Context())
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("the next waited %s", waited)
		}
		long.End() // its turn ended long ago, and that of another goes on
		var none *turns.Turn
		none.Take(t.Context())
		none.Rest()(t.Context())
		three, last := line.Of("three"), false
		go func() { three.Take(t.Context()); last = true }()
		synctest.Wait()
		if last {
			t.Error("there is a turn more than places")
		}
		next.End()
		synctest.Wait()
		if !last {
			t.Error("the place of a turn is lost")
		}
		three.End()
	})
}

// TestWaitingHoldsNobodyUp: while one goroutine of a request waits for the turn, others of it
// rest and end the turn, which ends the wait.
func TestWaitingHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(turn *turns.Turn, cancel func()){
		"the turn ends":    func(turn *turns.Turn, _ func()) { turn.End() },
		"the request ends": func(_ *turns.Turn, cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				line := turns.New(1)
				holder, turn := line.Of("one"), line.Of("two")
				holder.Take(t.Context())
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ctx = turn.With(ctx)
				began := time.Now()
				var waits sync.WaitGroup
				for range 3 {
					waits.Go(func() { turn.Take(context.WithoutCancel(ctx)) })
				}
				synctest.Wait()
				turn.Rest()
				end(turn, cancel)
				waits.Wait()
				turn.End()
				turn.End()
				if waited := time.Since(began); waited > 0 {
					t.Errorf("waited for %s", waited)
				}
				holder.End()
				next := line.Of("three")
				next.Take(t.Context())
				next.End()
				if waited := time.Since(began); waited > 0 {
					t.Errorf("who comes next waits for %s: the place is lost", waited)
				}
			})
		})
	}
}

// TestGoroutinesShareATurn: those of a request have one turn together, and when all of
// them rested, the last one to go on takes it.
func TestGoroutinesShareATurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		line := turns.New(1)
		shared, other := line.Of("one"), line.Of("two")
		shared.Take(t.Context())
		first, second := shared.Rest(), shared.Rest()
		other.Take(t.Context())
		began := time.Now()
		first(t.Context())
		first(t.Context()) // once too often
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the first waits for %s while the second rests", waited)
		}
		var waits sync.WaitGroup
		waits.Go(func() { second(t.Context()) })
		waits.Go(func() { shared.Take(t.Context()) })
		time.Sleep(time.Millisecond)
		other.End()
		waits.Wait()
		if waited := time.Since(began); waited != time.Millisecond {
			t.Errorf("they waited for %s", waited)
		}
		next := line.Of("two")
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if next.Take(ctx); ctx.Err() == nil {
			t.Error("they have no turn")
		}
		shared.End()
		next.Take(t.Context()) // there is one place, and it is free
		next.End()
	})
}

func TestFrom(t *testing.T) {
	t.Parallel()
	turn := turns.New(1).Of("jane")
	if got := turns.From(turn.With(t.Context())); got != turn {
		t.Errorf("got %v", got)
	}
	if got := turns.From(t.Context()); got != nil {
		t.Errorf("got %v of nothing", got)
	}
}

// TestTell: it is told when the first large request comes and when the last one ends, those
// that wait and rest included.
func TestTell(t *testing.T) {
	t.Parallel()
	var told []bool
	line := turns.New(1)
	line.Tell(func(computing bool) { told = append(told, computing) })
	want := func(when string, want ...bool) {
		t.Helper()
		if diff := cmp.Diff(want, told); diff != "" {
			t.Errorf("%s (-want +told):\n%s", when, diff)
		}
		told = nil
	}
	small, first, second := line.Of("jane"), line.Of("jane"), line.Of("jane")
	small.End()
	want("of a request that took no turn")
	first.Take(t.Context())
	first.Take(t.Context())
	want("of the first", true)
	resume := first.Rest()
	second.Take(t.Context())
	first.End()
	want("of a second, and the end of one that rests")
	resume(t.Context())
	second.End()
	second.End()
	want("of the end of the last", false)
	first.Take(t.Context())
	want("of a request that has ended")
	third := line.Of("jane")
	third.Take(t.Context())
	want("of another", true)
	third.End()
	want("of its end", false)
}
