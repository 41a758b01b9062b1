package controlplane

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// objects is a server of secrets, which sends those it has by name.
type objects struct {
	mu sync.Mutex
	// cuts are what ends the first watches, before the last of the present objects.
	cuts []func(chan<- watch.Event)
	all  []*corev1.Secret
}

func (o *objects) watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	events := make(chan watch.Event, 10)
	w := watch.NewProxyWatcher(events)
	if opts.SendInitialEvents == nil || !*opts.SendInitialEvents {
		return w, nil // and nothing is newer than what the watcher names
	}
	var cut func(chan<- watch.Event)
	if len(o.cuts) > 0 {
		cut, o.cuts = o.cuts[0], o.cuts[1:]
	}
	for _, secret := range o.all {
		events <- watch.Event{Type: watch.Added, Object: secret.DeepCopy()}
		if cut != nil {
			cut(events)
			return w, nil
		}
	}
	end := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "30", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	events <- watch.Event{Type: watch.Bookmark, Object: end}
	return w, nil
}

// TestLazyInformerIsCutOff: an informer whose first watch of a written resource ends
// among the objects, which come by name and not by age, has all of them in the end.
func TestLazyInformerIsCutOff(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(chan<- watch.Event){
		"closed": func(events chan<- watch.Event) { close(events) },
		"an error": func(events chan<- watch.Event) {
			events <- watch.Event{Type: watch.Error, Object: &metav1.Status{Status: metav1.StatusFailure, Code: 429, Reason: metav1.StatusReasonTooManyRequests}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &objects{cuts: []func(chan<- watch.Event){cut}}
			for i, version := range []int{30, 10, 20} {
				server.all = append(server.all, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
					Name: string(rune('a' + i)), Namespace: "shop", ResourceVersion: fmt.Sprint(version),
				}})
			}
			written, writes := make(chan struct{}), 0
			lazy := &lazyWatch{
				all: &cache.ListWatch{WatchFuncWithContext: server.watch}, example: &corev1.Secret{},
				first: func(context.Context) (<-chan struct{}, int64, error) {
					if writes++; writes > 1 {
						return nil, 0, nil
					}
					return written, 5, nil
				},
			}
			lw := &cache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					t.Error("the informer lists")
					return &corev1.SecretList{}, nil
				},
				WatchFuncWithContext: lazy.watch,
			}
			informer := cache.NewSharedIndexInformerWithOptions(lw, &corev1.Secret{}, cache.SharedIndexInformerOptions{})
			added := make(chan struct{}, 100)
			if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { added <- struct{}{} }}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); informer.RunWithContext(ctx) }()
			defer func() { cancel(); <-ended }()
			if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) || len(informer.GetStore().List()) > 0 {
				t.Fatalf("without a write there are %d objects", len(informer.GetStore().List()))
			}
			close(written)
			late := time.After(time.Minute)
			for len(informer.GetStore().List()) < len(server.all) {
				select {
				case <-added:
				case <-late:
					t.Fatalf("after a minute the informer has %v", informer.GetStore().ListKeys())
				}
			}
		})
	}
}
