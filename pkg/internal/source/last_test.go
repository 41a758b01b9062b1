package source_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"github.com/sailplane-dev/sailplane/pkg/internal/source"
)

type warned struct{ texts []string }

func (w *warned) AddWarning(_, text string) { w.texts = append(w.texts, text) }

// TestLast: the last good answer has to do as long as it was declared, for reads.
func TestLast(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stale, age time.Duration
		verb       string
		forgotten  bool
		want       bool
	}{
		"young":     {stale: time.Minute, age: 59 * time.Second, verb: "list", want: true},
		"old":       {stale: time.Minute, age: 61 * time.Second, verb: "list"},
		"undefined": {age: 0, verb: "get"},
		"a write":   {stale: time.Minute, verb: "delete"},
		"a program": {stale: time.Minute, want: true},
		"forgotten": {stale: time.Minute, verb: "get", forgotten: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &warned{}
				ctx := warning.WithWarningRecorder(context.Background(), w)
				if c.verb != "" {
					ctx = request.WithRequestInfo(ctx, &request.RequestInfo{Verb: c.verb})
				}
				l := &source.Last{Stale: c.stale}
				why := errors.New("frost")
				if l.Answers(ctx, why) {
					t.Error("there is an answer before the first one")
				}
				l.Good(time.Now())
				l.Good(time.Now().Add(-time.Hour)) // a read that took long
				l.Fail(why)
				time.Sleep(c.age)
				if c.forgotten {
					l.Forget()
				}
				if got := l.Answers(ctx, why); got != c.want {
					t.Errorf("it has to do: %v, want %v", got, c.want)
				}
				var want []string
				if c.want {
					want = []string{"this is " + c.age.String() + " old: frost"}
				}
				if !slices.Equal(w.texts, want) {
					t.Errorf("the warnings are %q, want %q", w.texts, want)
				}
			})
		})
	}
}
