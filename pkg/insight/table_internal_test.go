package insight

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is a time of a test, so many minutes after its begin.
func at(minutes int) time.Time { return time.Unix(int64(minutes)*60, 0) }

// named is a counter of a plane.
func named(name string) *counter {
	c := &counter{}
	c.plane.Store(&name)
	return c
}

func one() counts { return counts{requests: 1, failed: 1, seconds: 0.5} }

// reported is what a report has of the requests at a time.
func reported(r *requests, now time.Time) *Report {
	to := &Report{}
	r.report(to, now, at(0))
	return to
}

// TestCountsAreExact: users who fit into the table are counted exactly, also when
// many ask at once.
func TestCountsAreExact(t *testing.T) {
	t.Parallel()
	const each, askers = 10_000, 8
	r, root := newRequests(time.Second), &counter{}
	var running sync.WaitGroup
	for i := range askers {
		running.Go(func() {
			for range each {
				for user := range i + 1 { // the first user asks in all of them
					r.add(at(1), caller{root, fmt.Sprint("user-", user)}, one())
				}
			}
		})
	}
	running.Wait()
	var want []User
	for user := range askers {
		n := int64(each * (askers - user))
		want = append(want, User{User: fmt.Sprint("user-", user), Requests: n, Errors: n, Seconds: float64(n) / 2})
	}
	got := reported(r, at(1))
	for name, users := range map[string]Users{"since the start": got.Total, "recently": got.Recent} {
		if diff := cmp.Diff(Users{Seconds: users.Seconds, Users: want}, users); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestUsersAreBounded: ten thousand users, with long names, take the memory of a few,
// push out nobody who asks often, and are all counted.
func TestUsersAreBounded(t *testing.T) {
	t.Parallel()
	r, root := newRequests(time.Second), &counter{}
	const strangers, often = 10_000, 400
	for i := range strangers {
		name := cut(fmt.Sprintf("%05d", i)+strings.Repeat("x", 1<<10), nameBytes)
		r.add(at(1), caller{root, name}, one())
		if i%(strangers/often) == 0 {
			r.add(at(1), caller{root, "ann"}, one())
		}
	}
	for name, table := range map[string]*table{"total": r.total, "recent": r.recent[1]} {
		if len(table.rows) != mostUsers || len(table.at) != mostUsers {
			t.Errorf("%s has %d rows, and %d users: want %d", name, len(table.rows), len(table.at), mostUsers)
		}
		for who := range table.at {
			if len(who.user) > nameBytes {
				t.Errorf("%s has a name of %d bytes", name, len(who.user))
			}
		}
	}
	got := reported(r, at(1)).Total
	if ann := got.Users[0]; ann.User != "ann" || ann.Requests != often {
		t.Errorf("first is %.10q with %d requests: want ann with %d", ann.User, ann.Requests, often)
	}
	sum := got.Others.Requests
	for _, u := range got.Users {
		sum += u.Requests
	}
	if len(got.Users) != mostAskers || sum != strangers+often {
		t.Errorf("%d users are shown, and %d requests in all: want %d and %d", len(got.Users), sum, mostAskers, strangers+often)
	}
}

// TestLateUsersComeIn: who begin to ask when the table is full of others are shown,
// also if they take turns: they push out those who asked less, and not each other.
func TestLateUsersComeIn(t *testing.T) {
	t.Parallel()
	r, root := newRequests(time.Second), &counter{}
	for i := range 10 * mostUsers {
		r.add(at(1), caller{root, fmt.Sprint("user-", i%mostUsers)}, one())
	}
	for range 100 {
		r.add(at(1), caller{root, "ann"}, one())
		r.add(at(1), caller{root, "bob"}, one())
	}
	got := reported(r, at(1)).Total.Users
	for i, name := range []string{"ann", "bob"} {
		if got[i].User != name || got[i].Requests != 100 {
			t.Errorf("user %d is %q with %d requests: want %s, with 100", i, got[i].User, got[i].Requests, name)
		}
	}
}

// TestRecentEnds: recent counts are those of five minutes.
func TestRecentEnds(t *testing.T) {
	t.Parallel()
	r, root := newRequests(time.Second), &counter{}
	for minute, user := range []string{10: "early", 11: "ann", 14: "ann", 15: "bob"} {
		if user != "" {
			r.add(at(minute), caller{root, user}, one())
		}
	}
	for name, tc := range map[string]struct {
		now  time.Time
		want string
	}{
		"the minute of the last request": {at(15), "[ann:2 bob:1] 240 s"},
		"its end":                        {at(15).Add(59 * time.Second), "[ann:2 bob:1] 299 s"},
		"the minute after":               {at(16), "[ann:1 bob:1] 240 s"},
		"when only bob's is recent":      {at(19), "[bob:1] 240 s"},
		"when all is over":               {at(20), "[] 240 s"},
		"long after":                     {at(1000), "[] 240 s"},
	} {
		copied := newRequests(time.Second) // reports forget what is over
		copied.minute = r.minute
		for i, table := range r.recent {
			for _, row := range table.rows {
				copied.recent[i].add(row.who, row.counts)
			}
		}
		recent := reported(copied, tc.now).Recent
		got := []string{}
		for _, u := range recent.Users {
			got = append(got, fmt.Sprintf("%s:%d", u.User, u.Requests))
		}
		if s := fmt.Sprintf("%v %.0f s", got, math.Round(recent.Seconds)); s != tc.want {
			t.Errorf("%s: %s, want %s", name, s, tc.want)
		}
	}
}

// TestPlanesAreApart: a user's name means another user in another plane, and the same
// one in a plane that was started again.
func TestPlanesAreApart(t *testing.T) {
	t.Parallel()
	r := newRequests(time.Second)
	for _, plane := range []*counter{named("blue"), named("blue"), named("red"), named("")} {
		r.open(at(1), caller{plane, "ann"})
	}
	want := []User{
		{Plane: "blue", User: "ann", Requests: 2, Watches: 2},
		{User: "ann", Requests: 1, Watches: 1},
		{Plane: "red", User: "ann", Requests: 1, Watches: 1},
	}
	if diff := cmp.Diff(want, reported(r, at(1)).Total.Users); diff != "" {
		t.Errorf("users (-want +got):\n%s", diff)
	}
}

// TestSlowOnesAreBounded: the latest are kept, and the latest of them comes first.
func TestSlowOnesAreBounded(t *testing.T) {
	t.Parallel()
	r, root := newRequests(time.Second), &counter{}
	for i := range 3*mostSlow + 1 {
		r.late(slowRequest{SlowRequest{Code: i + 1}, root})
	}
	slow := reported(r, at(1)).Slow
	if len(slow) != mostSlow || slow[0].Code != 3*mostSlow+1 || slow[mostSlow-1].Code != 2*mostSlow+2 {
		t.Errorf("%d slow requests, %+v: want the last %d", len(slow), slow, mostSlow)
	}
}
