package storagetest

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// BenchmarkStart measures the time from the start to the first answer, for an
// empty storage and for one that is opened again with 1000 objects in it.
func BenchmarkStart(b *testing.B, open func(testing.TB) controlplane.Storage) {
	b.Run("new", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			d := open(b)
			b.StartTimer()
			answer(b, d)
		}
	})
	b.Run("again", func(b *testing.B) {
		d := open(b)
		h := newSuite(open, nil).start(b, d)
		for i := range 1000 {
			h.create(b, fmt.Sprintf("/t/%d", i), string(bytes.Repeat([]byte("x"), 1024)))
		}
		stop(b, h.storage)
		for b.Loop() {
			answer(b, d)
		}
	})
}

// answer starts a storage, reads from it, and stops it with the clock stopped.
func answer(b *testing.B, d controlplane.Storage) {
	s := d.Open()
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	h := newSuite(nil, nil).with(b, s)
	h.get(b, "/t/0", 0)
	b.StopTimer()
	stop(b, s)
	b.StartTimer()
}

// BenchmarkCreate measures transactions that create a key of 1 KiB, and the
// CPU time they take, with one client and with 16.
func BenchmarkCreate(b *testing.B, open func(testing.TB) controlplane.Storage) {
	value := bytes.Repeat([]byte("x"), 1024)
	for _, writers := range []int{1, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			h := newSuite(open, nil).start(b, open(b))
			var next atomic.Int64
			b.ResetTimer()
			before := cpuTime()
			inParallel(writers, func(int) {
				for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
					key := fmt.Sprintf("/registry/configmaps/default/%d", i)
					r, err := h.client.OptimisticPut(b.Context(), key, value, 0, kubernetes.PutOptions{})
					if err != nil || !r.Succeeded {
						b.Error(r, err)
						return
					}
				}
			})
			b.ReportMetric(float64((cpuTime()-before).Microseconds())/float64(b.N), "cpu-us/op")
		})
	}
}
