// Package source is what resources have in common that are read from somewhere else than the storage
// of the plane: what is in memory while somebody uses it, and some time longer.
package source

import (
	"errors"
	"sync"
	"time"
)

// ErrClosed is the error of what is used after its end.
var ErrClosed = errors.New("the store is closed: the server is stopping, or the resource is no longer served")

// Rest is how long a value is kept that nobody uses: clients whose watch was cut go on where they
// were.
const Rest = time.Minute

// Shared is a value that all its users share. It is made for the first one, and closed some time
// after the last one; the next one gets another value. Open must be set.
type Shared[T any] struct {
	// Open makes a value.
	Open func() (T, error)
	// Close ends one.
	Close func(T)
	// Rest is how long a value is kept that nobody uses. 0: [Rest].
	Rest time.Duration
	// Keep tells whether a value is kept at all that nobody uses. Nil: it is.
	Keep func(T) bool

	mu    sync.Mutex
	ended bool
	made  bool
	now   T
	users int
	uses  int       // so far
	until time.Time // when a value ends that nobody uses
	rest  *time.Timer
}

// Use returns the value, until done is called.
func (s *Shared[T]) Use() (value T, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var zero T
	if s.ended {
		return zero, nil, ErrClosed
	}
	if !s.made {
		if s.now, err = s.Open(); err != nil {
			return zero, nil, err
		}
		s.made = true
	}
	return s.now, s.use(true), nil
}

// Peek returns the value, if there is one, until done is called. It does not have the value be kept
// any longer.
func (s *Shared[T]) Peek() (value T, done func(), found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.made {
		return value, nil, false
	}
	return s.now, s.use(false), true
}

// use counts a user. The caller holds the lock.
func (s *Shared[T]) use(isUse bool) (done func()) {
	s.users++
	s.uses++
	if s.rest != nil {
		s.rest.Stop()
	}
	return sync.OnceFunc(func() { s.leave(isUse) })
}

func (s *Shared[T]) leave(isUse bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isUse {
		rest := s.Rest
		if rest == 0 {
			rest = Rest
		}
		s.until = time.Now().Add(rest)
	}
	if s.users--; s.users > 0 || !s.made {
		return
	}
	rest, uses := time.Until(s.until), s.uses
	if s.Keep != nil && !s.Keep(s.now) {
		rest = 0
	}
	s.rest = time.AfterFunc(rest, func() { s.unused(uses) })
}

// unused closes the value, unless somebody used it since.
func (s *Shared[T]) unused(since int) {
	s.mu.Lock()
	if s.uses != since {
		s.mu.Unlock()
		return
	}
	s.close()
}

// End closes the value. There is no other one.
func (s *Shared[T]) End() {
	s.mu.Lock()
	s.ended = true
	s.close()
}

// close closes the value and unlocks.
func (s *Shared[T]) close() {
	value, made := s.now, s.made
	var zero T
	s.now, s.made = zero, false
	if s.rest != nil {
		s.rest.Stop()
	}
	s.mu.Unlock()
	if made {
		s.Close(value)
	}
}
