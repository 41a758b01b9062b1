package fairness

import (
	"math"
	"testing"
)

// FuzzLimits: limits that are taken have a burst that lets requests through.
func FuzzLimits(f *testing.F) {
	f.Add(0.0, 0, 0, 0, 0, 0)
	f.Add(1.0, 1, 1, 1, 1, 1)
	f.Add(0.001, 0, 0, 0, 0, 0)
	f.Add(math.MaxFloat64, 0, math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt)
	f.Add(math.NaN(), 0, 0, 0, 0, 0)
	f.Add(math.Inf(1), 0, 0, 0, 0, 0)
	f.Add(math.Inf(-1), 0, 0, 0, 0, 0)
	f.Add(0.0, 1, 0, 0, 0, 0)
	f.Add(-1.0, -1, -1, -1, -1, -1)
	f.Fuzz(func(t *testing.T, perSecond float64, burst, bytes, objects, watches, requests int) {
		l := Limits{
			RequestsPerSecond: perSecond, Burst: burst, ObjectBytes: bytes, ObjectsPerResource: objects,
			WatchesPerUser: watches, RequestsAtOncePerUser: requests,
		}
		if l.check() != nil {
			return
		}
		if perSecond < 0 || math.IsNaN(perSecond) || burst < 0 || bytes < 0 || objects < 0 || watches < 0 || requests < 0 {
			t.Errorf("%+v is taken", l)
		}
		if perSecond == 0 {
			return
		}
		r, one := newRates(), rating{perSecond, l.burst()}
		if short, _ := r.take(1, r.sharesOf(&caller{name: "a", namespace: "b"}, "c", one, l.factor())); short != nil || l.burst() < 1 {
			t.Errorf("%+v lets nothing through: the burst is %d", l, l.burst())
		}
	})
}
