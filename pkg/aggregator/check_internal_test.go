package aggregator

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestDue: a server is asked what it serves at each check as long as an APIService waits for the
// answer, and else now and then.
func TestDue(t *testing.T) {
	t.Parallel()
	one, two := schema.GroupVersion{Group: "one.example.com", Version: "v1"}, schema.GroupVersion{Group: "two.example.com", Version: "v1"}
	bad := errors.New("bad status: 401")
	now := time.Now()
	for name, tc := range map[string]struct {
		state state
		asked time.Duration // ago
		want  bool
	}{
		"known":     {state{found: map[schema.GroupVersion]resources{one: {}}}, checkInterval, false},
		"long ago":  {state{found: map[schema.GroupVersion]resources{one: {}}}, discoverInterval, true},
		"away":      {state{err: bad, found: map[schema.GroupVersion]resources{one: {}}}, checkInterval, true},
		"new":       {state{found: map[schema.GroupVersion]resources{two: {}}}, checkInterval, true},
		"refused":   {state{failed: map[schema.GroupVersion]error{one: bad}}, checkInterval, true},
		"no longer": {state{found: map[schema.GroupVersion]resources{one: {}}, failed: map[schema.GroupVersion]error{one: bad}}, checkInterval, true},
	} {
		s := &server{asked: now.Add(-tc.asked)}
		s.wanted.Store(&[]schema.GroupVersion{one})
		if got := s.due(&tc.state, now); got != tc.want {
			t.Errorf("%s: due: %v, want %v", name, got, tc.want)
		}
	}
}
