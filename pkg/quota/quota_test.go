package quota_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

const (
	// limit is how long anything may take before it counts as never.
	limit = 2 * time.Minute
	// settle is longer than a request may stand still between its reservation and
	// its object, and brief is for a test that has no such request.
	settle = 12 * time.Second
	brief  = 3 * time.Second
)

type plane struct {
	*kubernetes.Clientset
	gadgets dynamic.ResourceInterface
	feed    *feed.Feed
}

func onEveryStorage(t *testing.T, settled time.Duration, test func(*testing.T, *plane)) {
	t.Helper()
	storages := map[string]controlplane.Storage{
		"memory": memory.Store{},
		"sqlite": sqlite.File{Path: t.TempDir() + "/state.db"},
		"etcd":   etcd.Embedded{Dir: t.TempDir()},
	}
	for name, d := range storages {
		t.Run(name, func(t *testing.T) { test(t, start(t, d, settled)) })
	}
}

func start(t *testing.T, d controlplane.Storage, settled time.Duration) *plane {
	t.Helper()
	p := &plane{}
	read := controlplane.PartFunc(func(plan *controlplane.Plan) error {
		plan.Work(controlplane.Work{Name: "test", Start: func(_ context.Context, plane *controlplane.Plane) error {
			p.feed = plane.Feed()
			return nil
		}})
		return nil
	})
	s, err := controlplane.New("quota").Storage(d).With(read,
		core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, core.Services{},
		crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(gadgets)}}},
		quota.SettledAfter(settled),
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	if p.Clientset, err = kubernetes.NewForConfig(s.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	p.gadgets = objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}).Namespace("default")
	return p
}

// limitTo creates a quota and waits until it has a status and admission knows
// that: a moment later, as in Kubernetes.
func (p *plane) limitTo(t *testing.T, hard map[corev1.ResourceName]string) {
	t.Helper()
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}}}
	hard["count/secrets"] = "0"
	for name, amount := range hard {
		q.Spec.Hard[name] = resource.MustParse(amount)
	}
	if _, err := p.CoreV1().ResourceQuotas("default").Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "the quota has a status", func() bool { return len(p.used(t)) == len(hard) })
	until(t, "the quota is in force", func() bool {
		_, err := p.CoreV1().Secrets("default").Create(t.Context(),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err != nil && strings.Contains(err.Error(), "exceeded quota")
	})
}

func (p *plane) used(t *testing.T) map[corev1.ResourceName]int64 {
	t.Helper()
	q, err := p.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[corev1.ResourceName]int64{}
	for name, amount := range q.Status.Used {
		all[name] = amount.Value()
	}
	return all
}

// use writes what is used of a name, whatever the count writes meanwhile.
func (p *plane) use(t *testing.T, name corev1.ResourceName, n int64) {
	t.Helper()
	if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		q, err := p.CoreV1().ResourceQuotas("default").Get(t.Context(), "q", metav1.GetOptions{})
		if err != nil {
			return err
		}
		q.Status.Used[name] = *resource.NewQuantity(n, resource.DecimalSI)
		_, err = p.CoreV1().ResourceQuotas("default").UpdateStatus(t.Context(), q, metav1.UpdateOptions{})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after %v: %s", limit, what)
		}
	}
}

func (p *plane) configMap(ctx context.Context, name string) error {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := p.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
	return err
}

func (p *plane) gadget(ctx context.Context, name string) error {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget"}}
	u.SetName(name)
	_, err := p.gadgets.Create(ctx, u, metav1.CreateOptions{})
	return err
}

// TestQuota: what is there counts from the start, a limit is not passed, and a
// deletion makes room.
func TestQuota(t *testing.T) {
	onEveryStorage(t, settle, func(t *testing.T, p *plane) {
		if err := p.configMap(t.Context(), "before"); err != nil {
			t.Fatal(err)
		}
		p.limitTo(t, map[corev1.ResourceName]string{"configmaps": "2", "count/gadgets.example.com": "1", "services": "5", "services.nodeports": "2"})
		if got, want := fmt.Sprint(p.used(t)), "map[configmaps:1 count/gadgets.example.com:0 count/secrets:0 services:0 services.nodeports:0]"; got != want {
			t.Errorf("used %s, want %s", got, want)
		}
		if err := p.configMap(t.Context(), "second"); err != nil {
			t.Fatal(err)
		}
		want := `configmaps "third" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2`
		if err := p.configMap(t.Context(), "third"); err == nil || err.Error() != want {
			t.Errorf("got error %v, want %s", err, want)
		}
		if err := p.gadget(t.Context(), "one"); err != nil {
			t.Fatal(err)
		}
		if err := p.gadget(t.Context(), "two"); err == nil || !strings.Contains(err.Error(), "exceeded quota: q, requested: count/gadgets.example.com=1") {
			t.Errorf("a second gadget: %v", err)
		}
		if err := p.CoreV1().ConfigMaps("default").Delete(t.Context(), "before", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		until(t, "a deletion makes room", func() bool { return p.used(t)["configmaps"] == 1 })
		until(t, "there is room", func() bool { return p.configMap(t.Context(), "third") == nil })
		nodePorts(t, p)
	})
}

// nodePorts are of more than their number: an update changes what is used.
func nodePorts(t *testing.T, p *plane) {
	t.Helper()
	services := p.CoreV1().Services("default")
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}},
	}
	s, err := services.Create(t.Context(), s, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "c", Port: 3})
	if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "exceeded quota: q, requested: services.nodeports=1") {
		t.Errorf("a third node port: %v", err)
	}
	s.Spec.Ports = s.Spec.Ports[:1]
	if _, err := services.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	until(t, "an update makes room", func() bool { return p.used(t)["services.nodeports"] == 1 })
}

// TestLeftReservation forgets what was reserved for objects that never came.
func TestLeftReservation(t *testing.T) {
	onEveryStorage(t, brief, func(t *testing.T, p *plane) {
		p.limitTo(t, map[corev1.ResourceName]string{"count/configmaps": "5"})
		var written time.Time
		for _, n := range []int64{2, 4} {
			written = time.Now()
			p.use(t, "count/configmaps", n)
			time.Sleep(brief / 3) // the second is left before the first is settled
		}
		// On a machine that was busy for so long it may be settled by now.
		if n := p.used(t)["count/configmaps"]; n != 4 && time.Since(written) < brief {
			t.Errorf("used %d before it is settled, want 4", n)
		}
		until(t, "nothing is used", func() bool { return p.used(t)["count/configmaps"] == 0 })
	})
}

// TestUnreserved counts objects for which nothing was reserved, as those are that
// come before admission knows of the quota.
func TestUnreserved(t *testing.T) {
	p := start(t, memory.Store{}, time.Hour)
	p.limitTo(t, map[corev1.ResourceName]string{"count/configmaps": "5"})
	if err := p.configMap(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	p.use(t, "count/configmaps", 0)
	until(t, "the ConfigMap is counted", func() bool { return p.used(t)["count/configmaps"] == 1 })
}

// isLate tells whether the published plugin gave a request up, which it does
// after ten seconds, on a busy machine. What it asks for may be reserved.
func isLate(err error) bool {
	return strings.Contains(err.Error(), "resource quota evaluation timed out")
}

// TestManyWriters: of 64 clients that create and delete at once, never more get
// through than there is room, and the room is used.
func TestManyWriters(t *testing.T) {
	onEveryStorage(t, settle, func(t *testing.T, p *plane) {
		const room = 20
		p.limitTo(t, map[corev1.ResourceName]string{"count/configmaps": fmt.Sprint(room), "count/gadgets.example.com": fmt.Sprint(room)})
		for name, create := range map[string]func(context.Context, string) error{"configmaps": p.configMap, "gadgets": p.gadget} {
			var created, late atomic.Int64
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					switch err := create(t.Context(), fmt.Sprint("w-", i)); {
					case err == nil:
						created.Add(1)
					case isLate(err):
						late.Add(1)
					case !strings.Contains(err.Error(), "exceeded quota"):
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			all.Wait()
			if n, late := created.Load(), late.Load(); n > room || n+late < room {
				t.Errorf("%d %s were created, and %d were late, want %d", n, name, late, room)
			}
		}
		// Deletions at the same time as creates: the limit holds all along.
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for j := range 10 {
					name := fmt.Sprint("x-", i, "-", j)
					if err := p.configMap(t.Context(), name); err != nil {
						if !strings.Contains(err.Error(), "exceeded quota") && !isLate(err) {
							t.Errorf("%s: %v", name, err)
						}
					} else {
						_ = p.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{})
					}
					_ = p.CoreV1().ConfigMaps("default").Delete(t.Context(), fmt.Sprint("w-", i*4), metav1.DeleteOptions{})
					list, err := p.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
					if err != nil || len(list.Items) > room {
						t.Errorf("%d ConfigMaps, %v, the limit is %d", len(list.Items), err, room)
					}
				}
			})
		}
		all.Wait()
		// The published plugin may reserve for a request that it refuses, when the
		// count gets between its two looks at it. That is forgotten after a while.
		until(t, "the status is true in the end", func() bool {
			list, err := p.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			n, used := len(list.Items), p.used(t)["count/configmaps"]
			return err == nil && used == int64(n)
		})
	})
}
