package planetest

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Plane is a running control plane, or a view of one: with another user (see
// [Plane.As]), namespace ([Plane.In]) or patience ([Plane.Within]). Make one with
// [Start] or [Main]. Its methods may be called by several goroutines at the same
// time; those that take a test fail it, and stop it at once where it cannot go
// on, so call them in the goroutine of the test.
type Plane struct {
	server    *server
	clients   *clients
	root      *clients // with all rights
	namespace string
	patience  time.Duration
}

// defaultPatience is how long a test waits at most, unless Within says otherwise.
const defaultPatience = 30 * time.Second

// Start starts a plane and stops it when the test ends. The parts are added to
// [Defaults]; one of the same type as a default takes its place. Everything else is
// in [Options], which has this function too.
//
// The test fails when the plane leaves a goroutine behind. Only goroutines
// count that the plane started, by itself or for a request: those of a client,
// such as a controller's, are the test's own. Stop them before the test ends,
// for example with t.Context(), which ends before the plane does.
func Start(t TB, parts ...controlplane.Part) *Plane {
	t.Helper()
	return Options{}.Start(t, parts...)
}

// Start is [Start] with options.
func (o Options) Start(t TB, parts ...controlplane.Part) *Plane {
	t.Helper()
	j := &journal{logf: t.Logf}
	s, err := o.start(contextOf(t), t.Name(), j.errors(), t.TempDir, parts)
	if err != nil {
		j.close()
		t.Fatalf("planetest: %v", err)
	}
	t.Cleanup(func() {
		t.Helper()
		defer j.close()
		if err := s.stop(); err != nil {
			t.Errorf("planetest: %v", err)
		}
	})
	return newPlane(s)
}

func newPlane(s *server) *Plane {
	root := newClients(s.config)
	return &Plane{server: s, clients: root, root: root, patience: defaultPatience}
}

// admin is the plane as seen with all rights.
func (p *Plane) admin() *Plane {
	view := *p
	view.clients = p.root
	return &view
}

// Config reaches the plane without a socket, with all rights unless [Plane.As]
// says otherwise. It is a copy, good for any client of this process until the
// plane stops.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.clients.config) }

// Kubeconfig is the path of a kubeconfig with all rights, when the plane was
// started with [Options.Kubeconfig]; else it is empty. It lives as long as the plane.
func (p *Plane) Kubeconfig() string { return p.server.kubeconfig }

// Client is the client of all built-in types.
func (p *Plane) Client() kubernetes.Interface { return p.clients.typed() }

// Dynamic is the client of all types there are.
func (p *Plane) Dynamic() dynamic.Interface { return p.clients.dynamic() }

// Discovery is the discovery client. It caches nothing.
func (p *Plane) Discovery() discovery.DiscoveryInterface { return p.clients.discovery() }

// RESTMapper maps kinds to resources. It asks again for what it did not find,
// so that it knows new CRDs.
func (p *Plane) RESTMapper() meta.ResettableRESTMapper { return p.clients.mapper() }

// As is the plane as another user sees it, by impersonation: what the user may do
// is up to the plane's RBAC. Groups are those given and system:authenticated; a
// user of the form system:serviceaccount:NAMESPACE:NAME is in those of its account.
func (p *Plane) As(user string, groups ...string) *Plane {
	view := *p
	config := rest.CopyConfig(p.server.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: slices.Clone(groups)}
	view.clients = newClients(config)
	return &view
}

// In is the plane seen from one namespace: objects that are applied without a
// namespace get it, and snapshots have only its objects.
func (p *Plane) In(namespace string) *Plane {
	view := *p
	view.namespace = namespace
	return &view
}

// Within is the plane whose waiting methods fail the test after d; 30 s if it is
// not called.
func (p *Plane) Within(d time.Duration) *Plane {
	view := *p
	view.patience = d
	return &view
}

// clients are those of one user, made when first used.
type clients struct {
	config    *rest.Config
	typed     func() kubernetes.Interface
	dynamic   func() dynamic.Interface
	discovery func() discovery.DiscoveryInterface
	mapper    func() meta.ResettableRESTMapper
}

func newClients(config *rest.Config) *clients {
	c := &clients{config: config}
	// The errors are about configurations that do not fit together: this one does.
	c.typed = sync.OnceValue(func() kubernetes.Interface { return kubernetes.NewForConfigOrDie(config) })
	c.dynamic = sync.OnceValue(func() dynamic.Interface { return dynamic.NewForConfigOrDie(config) })
	c.discovery = sync.OnceValue(func() discovery.DiscoveryInterface { return discovery.NewDiscoveryClientForConfigOrDie(config) })
	c.mapper = sync.OnceValue(func() meta.ResettableRESTMapper { return newMapper(c.discovery()) })
	return c
}
