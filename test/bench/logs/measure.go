package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// cpu is what the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// heap is what is live, in bytes.
func heap() uint64 {
	runtime.GC()
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// measureEvents measures a write and its event, with few and with many watches of
// other keys.
func measureEvents(ctx context.Context, l *lab) error {
	const writes = 5000
	title("A write and its event, CPU us", "storage", "10 watches elsewhere", "10,000 watches elsewhere")
	return l.each(ctx, func(name string, s controlplane.Storage) error {
		return with(ctx, s, func(c *clientv3.Client) error {
			watch := c.Watch(ctx, "/watched/", clientv3.WithPrefix(), clientv3.WithPrevKV())
			var took []float64
			watches := 0
			for _, others := range []int{10, 10_000} {
				for ; watches < others; watches++ {
					c.Watch(ctx, fmt.Sprintf("/others/%d/", watches), clientv3.WithPrefix())
				}
				runtime.GC()
				before := cpu()
				for range writes {
					if _, err := c.Put(ctx, "/watched/a", "1"); err != nil {
						return err
					}
					<-watch
				}
				took = append(took, float64((cpu()-before).Microseconds())/writes)
			}
			fmt.Printf("| %s | %.1f | %.1f |\n", name, took[0], took[1])
			return nil
		})
	})
}

// measureMemory measures what a log has in memory above its live data.
func measureMemory(ctx context.Context, l *lab) error {
	const small, large, keys = 1 << 10, 1 << 20, 100
	title("Memory above the live data, MiB", "storage", fmt.Sprintf("%d updates of 1 KiB", l.updates), fmt.Sprintf("updates of 1 MiB for %v", l.large))
	return l.each(ctx, func(name string, s controlplane.Storage) error {
		var row []string
		for _, size := range []int{small, large} {
			begun := time.Now()
			update := func(c *clientv3.Client) error {
				before := heap()
				value := strings.Repeat("x", size)
				if size == small {
					if _, err := fill(ctx, c, l.updates, keys, value); err != nil {
						return err
					}
				}
				for i := 0; size == large && time.Since(begun) < l.large; i++ {
					if _, err := c.Put(ctx, fmt.Sprintf("/registry/configmaps/default/%d", i%keys), value); err != nil {
						return err
					}
				}
				live := uint64(0)
				if name == "memory" {
					live = keys * uint64(size)
				}
				row = append(row, fmt.Sprintf("%.1f", (float64(heap())-float64(before)-float64(live))/(1<<20)))
				return nil
			}
			if err := with(ctx, l.storages()[name], update); err != nil {
				return err
			}
		}
		fmt.Printf("| %s | %s |\n", name, strings.Join(row, " | "))
		return nil
	})
}

// measureCompaction measures writes of one client alone, and while history is
// compacted.
func measureCompaction(ctx context.Context, l *lab) error {
	const history, keys, rounds = 50_000, 1000, 3
	title("Writes of 1 KiB, p50 / p99 ms", "storage", "alone", "while history is compacted")
	value := strings.Repeat("x", 1<<10)
	return l.each(ctx, func(name string, s controlplane.Storage) error {
		return with(ctx, s, func(c *clientv3.Client) error {
			var alone, during []time.Duration
			for range rounds {
				revision, err := fill(ctx, c, history, keys, value)
				if err != nil {
					return err
				}
				write := func(into *[]time.Duration) error {
					begun := time.Now()
					_, err := c.Put(ctx, "/registry/other", value)
					*into = append(*into, time.Since(begun))
					return err
				}
				for range 500 {
					if err := write(&alone); err != nil {
						return err
					}
				}
				done := make(chan error, 1)
				go func() {
					_, err := c.Compact(ctx, revision)
					done <- err
				}()
				for compacting := true; compacting; {
					select {
					case err := <-done:
						if err != nil {
							return err
						}
						compacting = false
					default:
						if err := write(&during); err != nil {
							return err
						}
					}
				}
			}
			fmt.Printf("| %s | %s | %s (%d writes) |\n", name, percentiles(alone), percentiles(during), len(during))
			return nil
		})
	})
}

// fill makes history, with several clients, and returns its last revision.
func fill(ctx context.Context, c *clientv3.Client, writes, keys int, value string) (revision int64, err error) {
	const clients = 32
	var all sync.WaitGroup
	errs := make(chan error, clients)
	var mu sync.Mutex
	for client := range clients {
		all.Go(func() {
			for i := client; i < writes; i += clients {
				r, err := c.Put(ctx, fmt.Sprintf("/registry/configmaps/default/%d", i%keys), value)
				if err != nil {
					errs <- err
					return
				}
				mu.Lock()
				revision = max(revision, r.Header.Revision)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	close(errs)
	return revision, <-errs
}

func percentiles(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	slices.Sort(all)
	at := func(p int) float64 { return float64(all[min(len(all)-1, len(all)*p/100)].Microseconds()) / 1000 }
	return fmt.Sprintf("%.2f / %.2f", at(50), at(99))
}
