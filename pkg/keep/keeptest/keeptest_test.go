package keeptest_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/apis/example"

	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

func options() keeptest.Options[example.Pod] {
	return keeptest.Options[example.Pod]{Fill: func(p *example.Pod, n int) { p.Spec.TerminationGracePeriodSeconds = new(int64(n)) }}
}

func TestMemory(t *testing.T) {
	t.Parallel()
	for name, clusterScoped := range map[string]bool{"Namespaced": false, "ClusterScoped": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options()
			o.ClusterScoped = clusterScoped
			o.Break = func(_ *testing.T, k keep.Keeper[example.Pod], key keep.Key) {
				k.(*memory).Break(key, errors.New("rotten"))
			}
			keeptest.Run(t, o, func(*testing.T) keep.Keeper[example.Pod] { return keeptest.NewMemory[example.Pod]() })
		})
	}
}

type memory = keeptest.Memory[example.Pod, *example.Pod]

// faulty is a keeper with a fault: each function stands in for a method.
type faulty struct {
	*memory
	get     func(*memory, keep.Key) (keep.Item[example.Pod], error)
	list    func(*memory, keep.Range) (keep.Page[example.Pod], error)
	put     func(*memory, *example.Pod, int64) (int64, error)
	changes func(*memory, int64) (keep.Batch[example.Pod], error)
}

func (f faulty) Get(ctx context.Context, key keep.Key) (keep.Item[example.Pod], error) {
	if f.get == nil {
		return f.memory.Get(ctx, key)
	}
	return f.get(f.memory, key)
}

func (f faulty) List(ctx context.Context, r keep.Range) (keep.Page[example.Pod], error) {
	if f.list == nil {
		return f.memory.List(ctx, r)
	}
	return f.list(f.memory, r)
}

func (f faulty) Put(ctx context.Context, o *example.Pod, ifVersion int64) (int64, error) {
	if f.put == nil {
		return f.memory.Put(ctx, o, ifVersion)
	}
	return f.put(f.memory, o, ifVersion)
}

func (f faulty) Changes(ctx context.Context, since int64) (keep.Batch[example.Pod], error) {
	if f.changes == nil {
		return f.memory.Changes(ctx, since)
	}
	return f.changes(f.memory, since)
}

// edited returns the changes of a keeper, edited.
func edited(edit func([]keep.Change[example.Pod]) []keep.Change[example.Pod]) func(*memory, int64) (keep.Batch[example.Pod], error) {
	return func(m *memory, since int64) (keep.Batch[example.Pod], error) {
		b, err := m.Changes(context.Background(), since)
		b.Changes = edit(b.Changes)
		return b, err
	}
}

// faults are keepers that the contract must find out, each with a test that does.
func faults() map[string]struct {
	found string
	with  faulty
} {
	ctx := context.Background()
	shared := &example.Pod{}
	return map[string]struct {
		found string
		with  faulty
	}{
		"put without looking at the version": {"PutChecks", faulty{put: func(m *memory, o *example.Pod, _ int64) (int64, error) {
			now, _ := m.Get(ctx, keep.Key{Namespace: o.Namespace, Name: o.Name})
			return m.Put(ctx, o, now.Version)
		}}},
		"look at the version, then write": {"LostUpdates", faulty{put: func(m *memory, o *example.Pod, ifVersion int64) (int64, error) {
			key := keep.Key{Namespace: o.Namespace, Name: o.Name}
			if now, err := m.Get(ctx, key); now.Version != ifVersion && err == nil {
				return 0, keep.ErrConflict
			} else if ifVersion != 0 && err != nil {
				return 0, err
			}
			time.Sleep(time.Millisecond) // somebody else may write now
			for {
				now, _ := m.Get(ctx, key)
				if version, err := m.Put(ctx, o, now.Version); err == nil {
					return version, nil
				}
			}
		}}},
		"versions that do not grow": {"PutAndGet", faulty{put: func(m *memory, o *example.Pod, ifVersion int64) (int64, error) {
			_, err := m.Put(ctx, o, ifVersion)
			return 5, err
		}}},
		"lists by namespace, then name": {"Order", faulty{list: func(m *memory, r keep.Range) (keep.Page[example.Pod], error) {
			page, err := m.List(ctx, r)
			slices.SortStableFunc(page.Items, func(a, b keep.Item[example.Pod]) int {
				if a.Object.Namespace < b.Object.Namespace {
					return -1
				} else if a.Object.Namespace > b.Object.Namespace {
					return 1
				}
				return 0
			})
			return page, err
		}}},
		"silence about what is broken": {"Broken", faulty{list: func(m *memory, r keep.Range) (keep.Page[example.Pod], error) {
			page, err := m.List(ctx, r)
			page.Items = slices.DeleteFunc(page.Items, func(i keep.Item[example.Pod]) bool { return i.Broken != nil })
			return page, err
		}}},
		"pages with a gap": {"Pages", faulty{list: func(m *memory, r keep.Range) (keep.Page[example.Pod], error) {
			page, err := m.List(ctx, r)
			if r.After.Name != "" && len(page.Items) > 1 {
				page.Items = page.Items[1:]
			}
			return page, err
		}}},
		"no change for removed objects": {"ChangesOfRemoved", faulty{changes: edited(func(all []keep.Change[example.Pod]) []keep.Change[example.Pod] {
			return slices.DeleteFunc(all, func(c keep.Change[example.Pod]) bool { return c.Object == nil })
		})}},
		"changes twice": {"Changes", faulty{changes: edited(func(all []keep.Change[example.Pod]) []keep.Change[example.Pod] {
			return append(all, all...)
		})}},
		"changes newest first": {"Changes", faulty{changes: edited(func(all []keep.Change[example.Pod]) []keep.Change[example.Pod] {
			slices.Reverse(all)
			return all
		})}},
		"silence about unknown versions": {"UnknownVersions", faulty{changes: func(m *memory, since int64) (keep.Batch[example.Pod], error) {
			b, err := m.Changes(ctx, since)
			if errors.Is(err, keep.ErrExpired) {
				b.Version, err = since, nil
			}
			return b, err
		}}},
		"one object for all readers": {"Copies", faulty{get: func(m *memory, key keep.Key) (keep.Item[example.Pod], error) {
			item, err := m.Get(ctx, key)
			if err == nil && shared.Name == "" {
				*shared = *item.Object
			}
			item.Object = shared
			return item, err
		}}},
	}
}

// TestFaulty is what TestFindsFaults runs: the contract over a keeper with the fault.
func TestFaulty(t *testing.T) {
	f, ok := faults()[os.Getenv("FAULT")]
	if !ok {
		t.Skip("TestFindsFaults runs it")
	}
	o := options()
	o.Break = func(_ *testing.T, k keep.Keeper[example.Pod], key keep.Key) {
		k.(faulty).Break(key, errors.New("rotten"))
	}
	keeptest.Run(t, o, func(*testing.T) keep.Keeper[example.Pod] {
		f.with.memory = keeptest.NewMemory[example.Pod]()
		return f.with
	})
}

// TestFindsFaults: the contract can fail.
func TestFindsFaults(t *testing.T) {
	t.Parallel()
	for _, name := range slices.Sorted(maps.Keys(faults())) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFaulty$")
			cmd.Env = append(os.Environ(), "FAULT="+name)
			out, err := cmd.CombinedOutput()
			found := regexp.MustCompile(`(?m)^\s+--- FAIL: TestFaulty/` + faults()[name].found + ` `)
			if err == nil || !found.Match(out) {
				t.Errorf("%s does not find it: %v\n%s", faults()[name].found, err, out)
			}
		})
	}
}
