package lifecycle_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
	"github.com/sailplane-dev/sailplane/pkg/storage/sqlite"
)

// hanging is a server that takes requests and never answers.
type hanging struct{ *httptest.Server }

func newHanging(t *testing.T) hanging {
	t.Helper()
	ended := make(chan struct{})
	s := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
		case <-ended:
		}
	}))
	t.Cleanup(func() { close(ended); s.Close() })
	return hanging{s}
}

// ResolveEndpoint implements controlplane.ServiceResolver.
func (h hanging) ResolveEndpoint(string, string, int32) (*url.URL, error) { return url.Parse(h.URL) }

// TestNeverAvailable: a server that never was reachable holds up no namespace, and
// says nothing there, whatever its check says.
func TestNeverAvailable(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		resolver func(*testing.T) controlplane.ServiceResolver
		status   string
	}{
		"Unchecked":   {reason: "nobody looks at it"},
		"Unavailable": {reason: "a check never reached it", status: "False"},
		"Discovered": {
			reason:   "the aggregator may read what it has before it lets anybody through",
			resolver: func(t *testing.T) controlplane.ServiceResolver { return newElsewhere(t) }, status: "Unknown",
		},
		"Hanging": {
			reason:   "it takes requests and does not answer",
			resolver: func(t *testing.T) controlplane.ServiceResolver { return newHanging(t) }, status: "False",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var resolver controlplane.ServiceResolver
			if c.resolver != nil {
				resolver = c.resolver(t)
			}
			p := start(t, memory.Store{}, aggregated(resolver))
			p.announce(t, farGroup)
			if c.status != "" {
				p.available(t, farGroup, c.status)
			}
			ns := p.create(t, "", "Namespace", "shop")
			p.create(t, "shop", "ConfigMap", "cm")
			held := p.create(t, "shop", "Gadget", "held")
			p.patch(t, held, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
			p.remove(t, ns, background)
			until(t, "the namespace says what holds it", func() bool {
				return strings.HasPrefix(conditions(t, p.get(t, ns))["NamespaceFinalizersRemaining"], "True")
			})
			if got := failure(t, p.get(t, ns)); got != "" {
				t.Errorf("%s: the conditions say %s", c.reason, got)
			}
			p.patch(t, held, `{"metadata": {"finalizers": null}}`)
			p.untilGone(t, held, ns)
		})
	}
}

// history are the versions of an object from one on until it is gone.
func (p *plane) history(t *testing.T, of *unstructured.Unstructured) []*unstructured.Unstructured {
	t.Helper()
	w, err := p.in("", "namespaces").Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: of.GetResourceVersion(), FieldSelector: "metadata.name=" + of.GetName(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	var all []*unstructured.Unstructured
	for late := time.After(limit); ; {
		select {
		case e, ok := <-w.ResultChan():
			u, isObject := e.Object.(*unstructured.Unstructured)
			if !ok || !isObject {
				t.Fatalf("the watch ended: %v", e)
			}
			all = append(all, u)
			if e.Type == watch.Deleted {
				return all
			}
		case <-late:
			t.Fatalf("not after %v: %s %q is gone", limit, of.GetKind(), of.GetName())
		}
	}
}

// TestDeadServer: a server that was reachable once is waited for, and for how long
// the namespace says with the name of its group. Then the namespace goes.
func TestDeadServer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		resolver func(*testing.T) controlplane.ServiceResolver
		status   string // after it was True
	}{
		"Gone":        {reason: "nobody knows where it is", status: "True"},
		"Unavailable": {reason: "a check found it dead", status: "False"},
		"Hanging": {
			reason:   "it takes requests and does not answer",
			resolver: func(t *testing.T) controlplane.ServiceResolver { return newHanging(t) }, status: "True",
		},
		"Broken": {
			reason: "it says what it has, and fails to delete it",
			resolver: func(t *testing.T) controlplane.ServiceResolver {
				far := newElsewhere(t)
				far.broken.Store(true)
				return far
			},
			status: "True",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var resolver controlplane.ServiceResolver
			if c.resolver != nil {
				resolver = c.resolver(t)
			}
			p := startWith(t, memory.Store{}, time.Second, aggregated(resolver))
			p.announce(t, farGroup)
			p.available(t, farGroup, "True")
			p.available(t, farGroup, c.status)
			ns := p.create(t, "", "Namespace", "shop")
			cm := p.create(t, "shop", "ConfigMap", "cm")
			if far, ok := resolver.(*elsewhere); ok {
				far.put(t, "shop")
			}
			p.remove(t, ns, background)
			var said []string
			for _, version := range p.history(t, ns) {
				said = append(said, failure(t, version))
			}
			if all := strings.Join(said, "\n"); !strings.Contains(all, farGroup) || !strings.Contains(all, "(waiting until 2") {
				t.Errorf("%s: the conditions do not say who is waited for, and until when: %s", c.reason, all)
			}
			p.untilGone(t, cm)
		})
	}
}

// both are servers by the name of the Service.
type both map[string]controlplane.ServiceResolver

// ResolveEndpoint implements controlplane.ServiceResolver.
func (b both) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return b[name].ResolveEndpoint(namespace, name, port)
}

// TestDeadServerAndOthers: while a namespace waits for a server that hangs, what
// others hold of it is deleted, and the conditions name only that server's group.
func TestDeadServerAndOthers(t *testing.T) {
	t.Parallel()
	const hung = "hung.example.com"
	far := newElsewhere(t)
	p := start(t, memory.Store{}, aggregated(both{farGroup: far, hung: newHanging(t)}))
	for _, group := range []string{farGroup, hung} {
		p.announce(t, group)
		p.available(t, group, "True")
	}
	ns := p.create(t, "", "Namespace", "shop")
	p.createFar(t, "shop")
	p.remove(t, ns, background)
	until(t, "only the server that hangs is waited for", func() bool {
		said := failure(t, p.get(t, ns))
		return far.remaining(t, "shop") == 0 && strings.Contains(said, hung) && !strings.Contains(said, farGroup)
	})
}

// TestDeadServerAndFinalizer: what the plane stores holds up its namespace when
// nobody waits for a dead server any more.
func TestDeadServerAndFinalizer(t *testing.T) {
	t.Parallel()
	p := startWith(t, memory.Store{}, time.Second, aggregator.APIServices{})
	p.announce(t, farGroup)
	p.available(t, farGroup, "True")
	ns := p.create(t, "", "Namespace", "shop")
	held := p.create(t, "shop", "Gadget", "held")
	p.patch(t, held, `{"metadata": {"finalizers": ["example.com/hold"]}}`)
	p.remove(t, ns, background)
	until(t, "the server is not waited for any more", func() bool {
		now := p.get(t, ns)
		if now == nil {
			t.Fatal("the namespace with an object that somebody holds is gone")
		}
		return strings.Contains(failure(t, now), "(stopped waiting at 2")
	})
	p.patch(t, held, `{"metadata": {"finalizers": null}}`)
	p.untilGone(t, held, ns)
}

// TestDeadServerOverRestart: what was Available is known after a restart, by its
// APIService alone, and what it holds goes with the namespace when it is back.
func TestDeadServerOverRestart(t *testing.T) {
	t.Parallel()
	far, file := newElsewhere(t), sqlite.File{Path: t.TempDir() + "/state.db"}
	first := start(t, file, aggregated(far))
	first.announce(t, farGroup)
	first.available(t, farGroup, "True")
	ns := first.create(t, "", "Namespace", "shop")
	first.createFar(t, "shop")
	far.dead.Store(true)
	first.available(t, farGroup, "False")
	first.remove(t, ns, background)
	first.stop()

	p := start(t, file, aggregated(far))
	until(t, "the condition says what did not answer", func() bool {
		now := p.get(t, ns)
		if now == nil {
			t.Fatal("the namespace did not wait for its server")
		}
		return strings.Contains(failure(t, now), farGroup)
	})
	far.dead.Store(false)
	p.available(t, farGroup, "True")
	p.untilGone(t, ns)
	if n := far.remaining(t, "shop"); n != 0 {
		t.Errorf("%d objects are left elsewhere of a namespace that is gone", n)
	}
}
