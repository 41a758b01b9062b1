//go:build unix

package life

import (
	"context"
	"errors"
	"flag"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// lasting is how long nothing happens to either server, while clients write and watch:
//
//	go -C test test ./lending/life -run TestLife -timeout 3h -args -lasting 2h
var lasting = flag.Duration("lasting", 0, "how long clients write and watch before anything happens")

// life is a sample-apiserver on lent storage, with those who use it.
type life struct {
	*lender
	sample  *sample
	load    *load
	watches []*follower
}

// TestLife: an unmodified sample-apiserver can keep its objects in the storage of the server that it is behind, as in
// an etcd of its own, whatever happens to either.
func TestLife(t *testing.T) {
	for kind, open := range storages() {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := &life{lender: lend(t, "sailplane", open(t))}
			for _, step := range []func(*life, *testing.T){
				(*life).begin, (*life).verbs, (*life).use, (*life).lasts, (*life).renewed, (*life).lenderRestarts, (*life).lenderKilled,
				(*life).moves, (*life).sampleKilled, (*life).complete, (*life).restored, (*life).limited, (*life).deleted,
			} {
				if step(l, t); t.Failed() {
					return
				}
			}
		})
	}
}

// begin has the EtcdStorage, the files and the APIServices.
func (l *life) begin(t *testing.T) {
	l.kubectl(t, "", "create namespace "+namespace)
	l.lent(t)
	l.sample = l.serve(t)
	l.announce(t, l.sample)
}

// use has clients write and watch, half of them through the lender, until nothing was lost.
func (l *life) use(t *testing.T) {
	through, direct := l.config(t), l.sample.direct(l.config(t))
	l.watches = []*follower{follow(t, "through the lender", through), follow(t, "at the server", direct)}
	l.load = write(t, map[string]*rest.Config{"a": through, "b": through, "c": direct, "d": direct})
	l.load.await(t)
}

// unnoticed does something that the clients may not notice: writers go on, and watches go on where they were.
func (l *life) unnoticed(t *testing.T, do func()) {
	t.Helper()
	before := l.expired()
	do()
	l.load.await(t)
	acknowledged := l.load.acknowledged()
	for _, w := range l.watches {
		w.check(t, acknowledged)
	}
	if diff := cmp.Diff(before, l.expired()); diff != "" {
		t.Errorf("how often each watch had to list anew (-want +got):\n%s", diff)
	}
}

// expired is how often each watch could not go on so far.
func (l *life) expired() (all []int) {
	for _, w := range l.watches {
		all = append(all, w.expiredSoFar())
	}
	return all
}

// lasts: for as long as nothing happens no request fails, and watches go on.
func (l *life) lasts(t *testing.T) {
	l.unnoticed(t, func() { must(t, behind.Pause(t.Context(), *lasting)) })
	for _, err := range l.load.failures() {
		t.Error(err)
	}
}

// renewed: a renewed certificate is taken over, and no request fails.
func (l *life) renewed(t *testing.T) {
	l.unnoticed(t, func() {
		before := l.sample.files.certificate(t)
		l.kubectl(t, "", "delete secret --namespace="+namespace+" "+secret)
		until(t, "the file has another certificate", func(context.Context) error {
			if l.sample.files.certificate(t) == before {
				return errors.New("it is the old one")
			}
			return nil
		})
	})
	for _, err := range l.load.failures() {
		t.Error(err)
	}
}

// lenderRestarts: the server that lends ends as it should, and is started again.
func (l *life) lenderRestarts(t *testing.T) {
	if l.forgets(t) {
		return
	}
	l.unnoticed(t, func() {
		must(t, l.Stop())
		l.start(t)
	})
}

// lenderKilled: the server that lends ends at once, and is started again.
func (l *life) lenderKilled(t *testing.T) {
	if l.forgets(t) {
		return
	}
	l.unnoticed(t, func() {
		l.Kill()
		l.start(t)
	})
}

// forgets tells whether the lender has nothing any more when it is started again.
func (l *life) forgets(t *testing.T) bool {
	if l.url != inMemory {
		return false
	}
	t.Log("left out: what is in memory ends with the process of the lender")
	return true
}

// sampleKilled: the sample-apiserver ends at once. It is started without a cache: what watches get, which go on where
// they were, it reads from the storage.
func (l *life) sampleKilled(t *testing.T) {
	l.unnoticed(t, func() { l.sample.restart(t, "--watch-cache=false") })
}

// complete ends the writers: everything that was acknowledged is there, and was seen.
func (l *life) complete(t *testing.T) {
	l.unnoticed(t, func() {})
	l.load.check(t, l.sample.direct(l.config(t)))
}
