package planetest_test

import (
	"runtime"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// BenchmarkFirst is the first plane of a process, which pays for what all share. It
// has a meaning with nothing before it only: -bench First -benchtime 1x -cpu 2.
func BenchmarkFirst(b *testing.B) {
	scope{b}.run(func(t planetest.TB) {
		for range b.N {
			planetest.Start(t)
		}
		b.StopTimer()
	})
}

// BenchmarkStart is each further plane, until it is ready.
func BenchmarkStart(b *testing.B) {
	for name, parts := range map[string][]controlplane.Part{
		"defaults": nil,
		"few":      {few()},
	} {
		b.Run(name, func(b *testing.B) {
			warm(b, parts)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				scope{b}.run(func(t planetest.TB) {
					b.StartTimer()
					planetest.Options{NoDefaults: parts != nil}.Start(t, parts...)
					b.StopTimer()
				})
			}
		})
	}
}

// BenchmarkMemory reports what a running plane holds.
func BenchmarkMemory(b *testing.B) {
	for name, parts := range map[string][]controlplane.Part{
		"defaults": nil,
		"few":      {few()},
	} {
		b.Run(name, func(b *testing.B) {
			warm(b, parts)
			scope{b}.run(func(t planetest.TB) {
				before, goroutines := held(), runtime.NumGoroutine()
				b.ResetTimer()
				for range b.N {
					planetest.Options{NoDefaults: parts != nil}.Start(t, parts...)
				}
				b.StopTimer()
				after := held()
				b.ReportMetric(float64(after.heap-before.heap)/float64(b.N)/(1<<20), "heap-MiB/plane")
				b.ReportMetric(float64(after.stack-before.stack)/float64(b.N)/(1<<20), "stack-MiB/plane")
				b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/float64(b.N), "goroutines/plane")
			})
		})
	}
}

type holding struct{ heap, stack int64 }

func held() holding {
	runtime.GC()
	runtime.GC() // what the first one finalised
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return holding{int64(m.HeapAlloc), int64(m.StackInuse)}
}

// warm has computed what is computed once per process.
func warm(b *testing.B, parts []controlplane.Part) {
	b.Helper()
	scope{b}.run(func(t planetest.TB) { planetest.Options{NoDefaults: parts != nil}.Start(t, parts...) })
}

// scope is a part of a benchmark that cleans up at its end.
type scope struct{ *testing.B }

func (s scope) run(f func(planetest.TB)) {
	t := &cleaner{B: s.B}
	defer func() {
		for i := len(t.cleanups) - 1; i >= 0; i-- {
			t.cleanups[i]()
		}
	}()
	f(t)
}

type cleaner struct {
	*testing.B
	cleanups []func()
}

func (c *cleaner) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }
