package source

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

// Last is the last good answer of a source: when what is in memory was all that the source said. Its
// zero value has none.
type Last struct {
	// Stale is how old an answer may be that clients get while the source fails. 0: they get none.
	Stale time.Duration

	mu      sync.Mutex
	good    time.Time
	problem error
}

// Rest is how long what is in memory is kept that nobody uses: as long as it may have to do.
func (l *Last) Rest() time.Duration { return max(Rest, l.Stale) }

// Good notes that what is in memory is all that the source said at a time.
func (l *Last) Good(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = nil
	if at.After(l.good) {
		l.good = at
	}
}

// Fail notes why what is in memory may be older than what the source has.
func (l *Last) Fail(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problem = why
}

// Problem is why the source fails; nil: it does not.
func (l *Last) Problem() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.problem
}

// Forget notes that nothing is in memory.
func (l *Last) Forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.good, l.problem = time.Time{}, nil
}

// Answers tells whether the last good answer has to do for a request, as the source fails. Then
// the client is warned. A write, which may begin with a read, is not given one.
func (l *Last) Answers(ctx context.Context, why error) bool {
	if info, ok := request.RequestInfoFrom(ctx); ok && info.Verb != "get" && info.Verb != "list" && info.Verb != "watch" {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	age := time.Since(l.good)
	if l.Stale <= 0 || l.good.IsZero() || age > l.Stale {
		return false
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("this is %v old: %v", age.Round(time.Second), why))
	return true
}
