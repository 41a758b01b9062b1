package source_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

// counted is a shared number, the number of values so far.
func counted() (s *source.Shared[int], opened, closed *int) {
	opened, closed = new(int), new(int)
	return &source.Shared[int]{
		Open:  func() (int, error) { *opened++; return *opened, nil },
		Close: func(int) { *closed++ },
	}, opened, closed
}

func use(t *testing.T, s *source.Shared[int]) (value int, done func()) {
	t.Helper()
	value, done, err := s.Use()
	if err != nil {
		t.Fatal(err)
	}
	return value, done
}

// TestShared: a value is for all its users, and is closed a minute after the last one.
func TestShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, opened, closed := counted()
		if _, _, found := s.Peek(); found {
			t.Error("there is a value before anybody used it")
		}
		a, doneA := use(t, s)
		b, doneB := use(t, s)
		if a != b {
			t.Errorf("two users have the values %d and %d", a, b)
		}
		doneA()
		doneA() // once is enough
		time.Sleep(2 * source.Rest)
		if *closed != 0 {
			t.Fatal("it is closed while somebody uses it")
		}
		doneB()
		time.Sleep(source.Rest - time.Second)
		c, doneC := use(t, s)
		if c != a || *closed != 0 {
			t.Errorf("before a minute the value is %d, want %d", c, a)
		}
		doneC()
		time.Sleep(source.Rest - time.Second)
		_, donePeek, found := s.Peek()
		if !found {
			t.Fatal("it is closed before a minute")
		}
		time.Sleep(2 * time.Second)
		if *closed != 0 {
			t.Error("it is closed while somebody looks at it")
		}
		donePeek()
		synctest.Wait()
		if *closed != 1 {
			t.Error("who looks has it be kept for longer")
		}
		if d, done := use(t, s); d != 2 || *opened != 2 {
			t.Errorf("the next user has the value %d", d)
		} else {
			done()
		}
		s.End()
		if *closed != 2 {
			t.Error("the end does not close the value")
		}
		if _, _, err := s.Use(); !errors.Is(err, source.ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		time.Sleep(2 * source.Rest)
		if *closed != 2 {
			t.Error("it is closed twice")
		}
	})
}

// TestSharedEndsInUse: the end does not wait for users, and is one for each value.
func TestSharedEndsInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, closed := counted()
		_, done := use(t, s)
		s.End()
		done()
		time.Sleep(2 * source.Rest)
		if *closed != 1 {
			t.Errorf("it is closed %d times", *closed)
		}
	})
}

// TestSharedNotKept: what is not worth it is closed with its last user, and what cannot be made is
// tried again.
func TestSharedNotKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, _, closed := counted()
		s.Keep = func(int) bool { return false }
		_, done := use(t, s)
		done()
		synctest.Wait()
		if *closed != 1 {
			t.Error("it is kept")
		}
		made := s.Open
		broken := errors.New("broken")
		s.Open = func() (int, error) { return 0, broken }
		if _, _, err := s.Use(); !errors.Is(err, broken) {
			t.Errorf("the error is %v", err)
		}
		s.Open = made
		if value, done := use(t, s); value != 2 {
			t.Errorf("after an error the value is %d", value)
		} else {
			done()
		}
		s.End()
	})
}
