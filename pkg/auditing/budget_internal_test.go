package auditing

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

func of(name string, code int32) *auditinternal.Event {
	e := &auditinternal.Event{Level: auditinternal.LevelMetadata, ResponseStatus: &metav1.Status{Code: code}, SourceIPs: []string{"192.0.2.1"}}
	e.User.Username = name
	return e
}

// shelf is a log of which nothing goes.
type shelf struct {
	*budget
	free int64
	now  time.Time
}

func newShelf(l Log) *shelf {
	s := &shelf{free: l.MaxSize * int64(l.MaxBackups+1), now: time.Now()}
	s.budget = newBudget(l, func(time.Duration, time.Time) int64 { return s.free })
	return s
}

// fill writes events of 1,000 bytes until one is not admitted, and returns the bytes.
func (s *shelf) fill(name string, code int32, most int) int {
	for n := 0; n < most; n += 1000 {
		if s.admits(of(name, code), 1000, s.now) != admitted {
			return n
		}
		s.free -= 1000
	}
	return most
}

// TestShares: nobody has more of a log than is left for others.
func TestShares(t *testing.T) {
	t.Parallel()
	const mega = 1_000_000
	s := newShelf(Log{MaxSize: mega, MaxBackups: 10, Keep: 7 * day})
	near := func(got, want int, why string) {
		t.Helper()
		if math.Abs(float64(got-want)) > 0.01*11*mega {
			t.Errorf("%s: got %d bytes, want about %d", why, got, want)
		}
	}
	near(s.fill("ann", 201, 20*mega), 11*mega/2, "one alone has half of the log")
	near(s.fill("bob", 403, 20*mega), 11*mega/4, "what is refused counts too: half of what is left")
	near(s.fill("system:serviceaccount:a:one", 201, 20*mega), 11*mega/8, "an account has half of what is left then")
	near(s.fill("system:serviceaccount:a:two", 201, 20*mega), 0, "another account of the namespace has what the first one has")
	near(s.fill("system:serviceaccount:b:one", 201, mega/2), mega/2, "another namespace has its own")
	if got := s.fill("ann", 201, mega); got != 0 {
		t.Errorf("who had half has %d bytes more at once", got)
	}
	s.free = 0
	if got := s.fill("eve", 201, mega); got < 10_000 || got > 11*mega/floorShare {
		t.Errorf("of a log that is full somebody new has %d bytes: want nearly a thousandth", got)
	}
	s.free = 5 * mega
	s.now = s.now.Add(7 * day)
	if got := s.fill("ann", 201, mega); got != mega {
		t.Errorf("a week later who had half has %d bytes: want %d", got, mega)
	}
}

// TestNoPromise: where nothing is kept for sure everything is written.
func TestNoPromise(t *testing.T) {
	t.Parallel()
	for name, l := range map[string]Log{
		"no Keep":       {MaxSize: 1000, MaxBackups: 1},
		"all are kept":  {MaxSize: 1000, Keep: day},
		"one that goes": {Keep: day},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := newShelf(l).fill("ann", 201, 1_000_000); got != 1_000_000 {
				t.Errorf("got %d bytes of 1,000,000", got)
			}
		})
	}
}

// TestStrangers: who did not log in has a hundredth of the log a day.
func TestStrangers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		log    Log
		event  *auditinternal.Event
		want   int
	}{
		"default":           {"a hundredth of the files", Log{MaxSize: 1_000_000, MaxBackups: 9}, of("", 401), 100_000},
		"anonymous":         {"who comes without a name and is refused is one as well", Log{MaxSize: 1_000_000, MaxBackups: 9}, of("system:anonymous", 403), 100_000},
		"anonymous may":     {"whom the server lets do it is none", Log{MaxSize: 1_000_000, MaxBackups: 9}, of("system:anonymous", 201), 1_000_000},
		"field":             {"the field says how much", Log{StrangerBytes: 50_000}, of("", 401), 50_000},
		"no bound":          {"the field says that there is none", Log{StrangerBytes: controlplane.Unlimited}, of("", 401), 1_000_000},
		"without a size":    {"there is a bound all the same", Log{}, of("", 401), 1_000_000},
		"small":             {"one event is written", Log{MaxSize: 1000, MaxBackups: 1}, of("", 401), 8000},
		"a user's failures": {"a user is none", Log{MaxSize: 1_000_000, MaxBackups: 9}, of("ann", 403), 1_000_000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShelf(tc.log)
			got := 0
			for got < 1_000_000 && s.admits(tc.event, 1000, s.now) == admitted {
				got += 1000
			}
			if got != tc.want {
				t.Errorf("%s: got %d bytes, want %d", tc.reason, got, tc.want)
			}
			s.now = s.now.Add(day)
			if s.admits(tc.event, 1000, s.now) != admitted {
				t.Errorf("%s: a day later there is no room", tc.reason)
			}
		})
	}
}
