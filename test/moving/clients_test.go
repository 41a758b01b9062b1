//go:build unix

package moving

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// patience bounds what a test waits for.
const patience = 3 * time.Minute

// proxy has an address that stays, for servers whose address does not.
type proxy struct {
	address string

	mu    sync.Mutex
	there string // empty: nowhere
	open  map[net.Conn]struct{}
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	p := &proxy{address: l.Addr().String(), open: map[net.Conn]struct{}{}}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.to("")
		serving.Wait()
	})
	return p
}

// to has new connections lead to an address, and ends the others.
func (p *proxy) to(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there = address
	for c := range p.open {
		_ = c.Close()
	}
}

func (p *proxy) serve(c net.Conn) {
	defer c.Close()
	p.mu.Lock()
	there := p.there
	p.mu.Unlock()
	if there == "" {
		return
	}
	s, err := net.Dial("tcp", there) //nolint:noctx // it is on this machine
	if err != nil {
		return
	}
	defer s.Close()
	p.mu.Lock()
	p.open[c] = struct{}{}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); _, _ = io.Copy(s, c); _ = s.Close() }()
	_, _ = io.Copy(c, s)
	_ = c.Close()
	<-done
	p.mu.Lock()
	delete(p.open, c)
	p.mu.Unlock()
}

// clients are those that are never restarted: an informer of ConfigMaps with what its handlers were told, and
// a controller that keeps a Secret with the content of each ConfigMap.
type clients struct {
	api      kubernetes.Interface
	gadgets  gadgets
	informer cache.SharedIndexInformer

	mu   sync.Mutex
	told map[string]string // by the handlers: what there is, by name
}

// secrets is the controller.
type secrets struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (s secrets) Reconcile(ctx context.Context, r controllerruntime.Request) (controllerruntime.Result, error) {
	var none controllerruntime.Result
	cm, secret := &corev1.ConfigMap{}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.Namespace, Name: r.Name}}
	if err := s.Get(ctx, r.NamespacedName, cm); apierrors.IsNotFound(err) {
		return none, client.IgnoreNotFound(s.Delete(ctx, secret))
	} else if err != nil {
		return none, err
	}
	_, err := controllerruntime.CreateOrUpdate(ctx, s.Client, secret, func() error {
		secret.StringData = nil
		secret.Data = map[string][]byte{"n": []byte(cm.Data["n"])}
		return nil
	})
	return none, err
}

func connect(t *testing.T, m *machine) *clients {
	t.Helper()
	c, err := m.server.Config()
	must(t, err)
	c = rest.CopyConfig(c)
	c.Host, c.QPS = "https://"+m.proxy.address, -1
	api, err := kubernetes.NewForConfig(c)
	must(t, err)
	all := &clients{api: api, gadgets: newGadgets(t, c, m.server.Kubeconfig()), told: map[string]string{}}
	factory := informers.NewSharedInformerFactoryWithOptions(api, 0, informers.WithNamespace("default"))
	all.informer = factory.Core().V1().ConfigMaps().Informer()
	_, err = all.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { all.hear(o, false) }, UpdateFunc: func(_, o any) { all.hear(o, false) },
		DeleteFunc: func(o any) { all.hear(o, true) },
	})
	must(t, err)
	manager, err := controllerruntime.NewManager(c, controllerruntime.Options{Metrics: server.Options{BindAddress: "0"}})
	must(t, err)
	must(t, controllerruntime.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		Watches(&corev1.Secret{}, &handler.EnqueueRequestForObject{}).
		Complete(secrets{manager.GetClient()}))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		select {
		case err := <-ended:
			t.Errorf("the controller ended before the test: %v", err)
			cancel()
		default:
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("the controller: %v", err)
			}
		}
		factory.Shutdown()
	})
	return all
}

// content is what is compared of a ConfigMap: its version too, so that nothing is right by chance.
func content(cm *corev1.ConfigMap) string { return cm.ResourceVersion + " " + cm.Data["n"] }

// hear takes in what a handler is told.
func (c *clients) hear(o any, gone bool) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	cm := o.(*corev1.ConfigMap)
	c.mu.Lock()
	defer c.mu.Unlock()
	if gone {
		delete(c.told, cm.Name)
		return
	}
	c.told[cm.Name] = content(cm)
}

// change creates, changes and deletes some ConfigMaps, as somebody else does.
func (c *clients) change(t *testing.T, step int) {
	t.Helper()
	configMaps := c.api.CoreV1().ConfigMaps("default")
	for _, name := range []string{"new", "updated", "deleted"} {
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, step)}, Data: map[string]string{"n": fmt.Sprint(step)},
		}, metav1.CreateOptions{})
		must(t, err)
	}
	for before := range step {
		err := configMaps.Delete(t.Context(), fmt.Sprintf("deleted-%d", before), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		cm, err := configMaps.Get(t.Context(), fmt.Sprintf("updated-%d", before), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue // it was created after the backup
		}
		must(t, err)
		cm.Data["n"] = fmt.Sprintf("%d again", step)
		_, err = configMaps.Update(t.Context(), cm, metav1.UpdateOptions{})
		must(t, err)
	}
}

// names are those of the ConfigMaps on the server.
func (c *clients) names(t *testing.T) []string {
	t.Helper()
	all, err := c.there(t.Context())
	must(t, err)
	return slices.Sorted(maps.Keys(all))
}

// there is what the server has.
func (c *clients) there(ctx context.Context) (map[string]string, error) {
	list, err := c.api.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for i := range list.Items {
		all[list.Items[i].Name] = content(&list.Items[i])
	}
	return all, nil
}

// agree waits until the informer, its handlers and the controller agree with the server.
func (c *clients) agree(t *testing.T, when string) {
	t.Helper()
	var why string
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		now := c.differ(ctx)
		if now != "" && ctx.Err() != nil {
			return false, ctx.Err() // what was said before says more
		}
		why = now
		return why == "", nil
	})
	if err != nil {
		t.Fatalf("%s: %s", when, why)
	}
}

// differ says in what they do not agree.
func (c *clients) differ(ctx context.Context) string {
	want, err := c.there(ctx)
	if err == nil {
		err = c.gadgets.there(ctx)
	}
	if err != nil {
		return err.Error()
	}
	stored := map[string]string{}
	for _, o := range c.informer.GetStore().List() {
		cm := o.(*corev1.ConfigMap)
		stored[cm.Name] = content(cm)
	}
	c.mu.Lock()
	told := maps.Clone(c.told)
	c.mu.Unlock()
	made, err := c.api.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	data, copied := map[string]string{}, map[string]string{}
	for name, text := range want {
		_, data[name], _ = strings.Cut(text, " ")
	}
	for i := range made.Items {
		copied[made.Items[i].Name] = string(made.Items[i].Data["n"])
	}
	for what, diff := range map[string]string{
		"the informer has (-server +informer)": cmp.Diff(want, stored), "its handlers were told (-server +handlers)": cmp.Diff(want, told),
		"the controller made (-server +Secrets)": cmp.Diff(data, copied),
	} {
		if diff != "" {
			return what + ":\n" + diff
		}
	}
	return ""
}
