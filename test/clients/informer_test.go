package clients

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/features"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// TestInformer fills an informer by one watch that begins with the list (KEP
// 3157), while eight clients write, and compares it with a list.
func TestInformer(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		if !features.FeatureGates().Enabled(features.WatchListClient) {
			t.Fatal("client-go does not use watch-list")
		}
		for way, config := range s.ways() {
			t.Run(way, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client := clientset(t, config)
				const before, during = 800, 200
				label := strings.ToLower(strings.ReplaceAll(way, " ", "-"))
				createMany(t, client, label, 0, before)

				recorded := &recorder{}
				factory := informersFor(t, recorded.wrap(config), label)
				informer := factory.Core().V1().ConfigMaps().Informer()
				factory.StartWithContext(ctx)
				defer factory.Shutdown()
				defer cancel()
				// Not as fast as they can: the watch cache closes a watch that falls some hundred changes behind.
				steady := rest.CopyConfig(config)
				steady.QPS, steady.Burst = 400, 1
				createMany(t, clientset(t, steady), label, before, before+during)
				if res := factory.WaitForCacheSyncWithContext(ctx); res.Err != nil {
					t.Fatal(res.AsError())
				}

				list, err := client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{LabelSelector: "test=" + label})
				must(t, err)
				want := versions(list.Items)
				if len(want) != before+during {
					t.Errorf("listed %d objects, want %d", len(want), before+during)
				}
				eventually(t, "the informer has every object", func() bool { return len(informer.GetStore().ListKeys()) >= len(want) })
				var got []corev1.ConfigMap
				for _, obj := range informer.GetStore().List() {
					got = append(got, *obj.(*corev1.ConfigMap))
				}
				if diff := cmp.Diff(want, versions(got)); diff != "" {
					t.Errorf("the informer differs from a list (-list +informer):\n%s", diff)
				}
				// On a busy machine the watch cache may end a watch as too slow, and the informer begins again.
				if n := recorded.count("/configmaps", []string{"watch=true", "sendInitialEvents=true"}, nil); n < 1 {
					t.Error("no watch began with a list: watch-list was not used")
				}
				if n := recorded.count("/configmaps", nil, []string{"watch=true"}); n != 0 {
					t.Errorf("the informer listed %d times: watch-list was not used", n)
				}
			})
		}
	})
}

// TestInformerResumes has the server end watches after two seconds (client-go
// takes less than one for a failure): the informer goes on where it was, and
// does not list again.
func TestInformerResumes(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := clientset(t, s.overTLS)
		createMany(t, client, "resume", 0, 10)
		var goesOn atomic.Bool
		recorded := &recorder{change: func(r *http.Request) {
			query := r.URL.Query()
			if query.Get("watch") != "true" || goesOn.Load() {
				return
			}
			goesOn.Store(query.Get("sendInitialEvents") != "true")
			query.Set("timeoutSeconds", "2")
			r.URL.RawQuery = query.Encode()
		}}
		factory := informersFor(t, recorded.wrap(s.overTLS), "resume")
		informer := factory.Core().V1().ConfigMaps().Informer()
		added := make(chan string, 100)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { added <- obj.(*corev1.ConfigMap).Name },
		})
		must(t, err)
		factory.StartWithContext(ctx)
		defer factory.Shutdown()
		defer cancel()
		for range 10 {
			receive(t, "an object that was there", added)
		}
		// On a busy machine the two seconds may be over soon after the list has come, or
		// before, and the informer begins again. From the first watch that goes on it
		// never does.
		begun := func() int {
			return recorded.count("/configmaps", []string{"watch=true", "sendInitialEvents=true"}, nil)
		}
		listed := func() int { return recorded.count("/configmaps", nil, []string{"watch=true"}) }
		eventually(t, "a watch that goes on", func() bool {
			return recorded.count("/configmaps", []string{"watch=true"}, []string{"sendInitialEvents=true"}) > 0
		})
		begunBefore, listedBefore := begun(), listed()
		createMany(t, client, "resume", 10, 11)
		if name := receive(t, "an object created during a watch that goes on", added); name != "resume-0010" {
			t.Errorf("got %s", name)
		}
		if n := begun(); n != begunBefore {
			t.Errorf("%d watches began with a list, want %d: the informer did not resume", n, begunBefore)
		}
		if n := listed(); n != listedBefore {
			t.Errorf("the informer listed %d times, want %d: it did not resume", n, listedBefore)
		}
	})
}

func clientset(t *testing.T, c *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(c)
	must(t, err)
	return client
}

func informersFor(t *testing.T, c *rest.Config, label string) informers.SharedInformerFactory {
	t.Helper()
	return informers.NewSharedInformerFactoryWithOptions(clientset(t, c), 0, informers.WithNamespace("default"),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = labels.Set{"test": label}.String()
		}))
}

// createMany creates config maps "LABEL-0000" and on from eight clients at once.
func createMany(t *testing.T, client kubernetes.Interface, label string, from, to int) {
	t.Helper()
	numbers := make(chan int)
	var clients sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for range 8 {
		clients.Go(func() {
			for i := range numbers {
				_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%04d", label, i), Labels: map[string]string{"test": label}},
					Data:       map[string]string{"at": time.Now().String()},
				}, metav1.CreateOptions{})
				if err != nil {
					t.Errorf("create %d: %v", i, err)
				}
			}
		})
	}
	for i := from; i < to; i++ {
		numbers <- i
	}
	close(numbers)
	clients.Wait()
}

// versions maps names to resource versions.
func versions(items []corev1.ConfigMap) map[string]string {
	m := make(map[string]string, len(items))
	for i := range items {
		m[items[i].Name] = items[i].ResourceVersion
	}
	return m
}
