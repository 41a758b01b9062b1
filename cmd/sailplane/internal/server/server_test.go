package server

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// defaults is a configuration in memory.
func defaults(t *testing.T) *config.Server {
	t.Helper()
	d := config.New()
	d.Default("storage.url", "memory")
	d.Default("listen", "127.0.0.1:0")
	d.Default("dataDir", filepath.Join(t.TempDir(), "data"))
	d.Default("audit.path", "none")
	c, err := d.Server()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func field(name string) string { return name }

// run starts a server, and ends it with the test.
func run(t *testing.T, l *Live) *controlplane.Server {
	t.Helper()
	b, _, err := Builder("test", l, field)
	if err != nil {
		t.Fatal(err)
	}
	s, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-s.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	return s
}

// TestResources: what is chosen is served, with what has to be, and nothing else.
func TestResources(t *testing.T) {
	t.Parallel()
	always := []string{
		"namespaces", "serviceaccounts", "leases", "selfsubjectreviews", "subjectaccessreviews", "customresourcedefinitions",
		"apiservices", "roles", "validatingwebhookconfigurations", "flowschemas",
	}
	for name, tc := range map[string]struct {
		reason    string
		resources []string
		want, not []string
	}{
		"All":      {"every kind", []string{"all"}, []string{"pods", "deployments", "configmaps", "endpoints", "endpointslices", "jobs", "ingresses", "events"}, nil},
		"Standard": {"what needs no node", []string{"standard"}, []string{"configmaps", "secrets", "services", "events"}, []string{"pods", "endpoints", "deployments"}},
		"Group":    {"a group", []string{"apps"}, []string{"deployments", "statefulsets"}, []string{"pods", "configmaps", "jobs"}},
		"Core":     {"the group without a name", []string{"core"}, []string{"pods", "configmaps", "endpoints"}, []string{"deployments"}},
		"Names":    {"a resource each", []string{"pods", "jobs.batch", "secrets"}, []string{"pods", "jobs", "secrets"}, []string{"cronjobs", "nodes", "configmaps"}},
		"None":     {"custom resources alone", nil, nil, []string{"configmaps", "pods", "secrets"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := defaults(t)
			c.Resources = tc.resources
			s := run(t, NewLive(c, false))
			have := resourcesOf(t, s)
			for _, want := range slices.Concat(always, tc.want) {
				if !slices.Contains(have, want) {
					t.Errorf("%s: %s is not served", tc.reason, want)
				}
			}
			for _, not := range tc.not {
				if slices.Contains(have, not) {
					t.Errorf("%s: %s is served", tc.reason, not)
				}
			}
		})
	}
}

// resourcesOf are the names of all resources of a server.
func resourcesOf(t *testing.T, s *controlplane.Server) []string {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, list := range lists {
		for _, r := range list.APIResources {
			names = append(names, r.Name)
		}
	}
	return names
}

// TestLends: a server that lends storage has the objects that certificates are written to, unless another one has.
func TestLends(t *testing.T) {
	t.Parallel()
	front := filepath.Join(t.TempDir(), "front.kubeconfig")
	content := clientcmdapi.NewConfig()
	content.Clusters["front"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	content.Contexts["front"], content.CurrentContext = &clientcmdapi.Context{Cluster: "front"}, "front"
	if err := clientcmd.WriteToFile(*content, front); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		kubeconfig string
		want       bool
	}{"Itself": {"", true}, "Another": {front, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := defaults(t)
			c.Resources, c.StorageAPI.Enabled, c.StorageAPI.Kubeconfig = nil, true, tc.kubeconfig
			have := resourcesOf(t, run(t, NewLive(c, false)))
			if !slices.Contains(have, "etcdstorages") {
				t.Error("etcdstorages are not served")
			}
			for _, name := range []string{"secrets", "configmaps"} {
				if got := slices.Contains(have, name); got != tc.want {
					t.Errorf("%s are served: %t, want %t", name, got, tc.want)
				}
			}
		})
	}
}

// TestMistakes: all of them are told at once, each with its field.
func TestMistakes(t *testing.T) {
	t.Parallel()
	c := defaults(t)
	c.Listen, c.Storage.URL, c.Storage.History = "nowhere", "floppy", metav1.Duration{}
	c.Resources, c.Authorization.Modes, c.Admission.Enable = []string{"pod"}, []string{"Node"}, []string{"PodSecurity"}
	c.Admission.Disable = []string{"NamespaceLifecycle"}
	c.Admission.Webhooks.Deny, c.CRDs, c.Serving.CertFile = []string{"here"}, "absent", "a.crt"
	c.Log.Verbosity, c.Log.Format, c.Limits.Mode = 11, "xml", "maybe"
	c.Services.Addresses = []config.Address{{Service: "a/b", Address: "c:1"}, {Service: "a/b", Address: "d:1"}}
	_, _, err := Builder("test", NewLive(c, false), field)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"listen: ", "storage.url: \"floppy\"", "storage.history: ", "resources: there is no group or resource \"pod\"", "authorization.modes: ",
		"admission.enable: ", "admission.disable: ", "admission.webhooks.deny: ", "crds: ", "serving.certFile: ", "log.verbosity: ", "log.format: ",
		"limits.mode: ", "services.addresses: a/b is named twice",
	} {
		if !strings.Contains("\n"+err.Error(), "\n"+want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

// TestWithoutDataDir: a server without one has no authority of its own, and keeps nothing.
func TestWithoutDataDir(t *testing.T) {
	t.Parallel()
	c := defaults(t)
	c.DataDir = ""
	_, _, err := Builder("test", NewLive(c, false), field)
	if err == nil || !strings.Contains(err.Error(), "serving.certFile: it is missing") {
		t.Errorf("%v, want an error: it has no certificate", err)
	}
	c.Storage.URL = ""
	if _, _, err := Builder("test", NewLive(c, false), field); err == nil || !strings.Contains(err.Error(), "storage.url: \"\": it is missing") {
		t.Errorf("%v, want an error: it has no storage", err)
	}
}

// TestChange: limits change while the server runs; other fields wait for a restart, and
// what is wrong changes nothing.
func TestChange(t *testing.T) {
	t.Parallel()
	c := defaults(t)
	l := NewLive(c, true)
	s := run(t, l)
	kubeconfig, _, err := Administrator(c).Issue(loginOf("ann", s.Address().String()))
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, kubeconfig)
	ask := func() error { return client.Get().AbsPath("/version").MaxRetries(0).Do(t.Context()).Error() }
	for range 20 {
		if err := ask(); err != nil {
			t.Fatalf("without a limit: %v", err)
		}
	}
	to := *c
	to.Limits.RequestsPerSecond, to.Limits.Burst, to.Profiling = 0.0001, 1, true
	now, later, err := l.Change(&to, field)
	if err != nil || !slices.Equal(now, []string{"limits.requestsPerSecond", "limits.burst"}) || !slices.Equal(later, []string{"profiling"}) {
		t.Errorf("now %v, later %v: %v", now, later, err)
	}
	refused := false
	for end := time.Now().Add(time.Minute); !refused && time.Now().Before(end); {
		refused = ask() != nil
	}
	if !refused {
		t.Error("a limit that was set has no effect")
	}
	wrong := to
	wrong.Limits.RequestsPerSecond, wrong.Listen = 0, "nowhere"
	if _, _, err := l.Change(&wrong, field); err == nil || !strings.Contains(err.Error(), "listen: ") {
		t.Errorf("a wrong one: %v", err)
	}
	if l.limits().Burst != 1 {
		t.Error("what is wrong changed something")
	}
}

// TestBodies: the fields have the defaults of the library, and 0 is no limit.
func TestBodies(t *testing.T) {
	t.Parallel()
	c := defaults(t)
	want := controlplane.BodyLimits{Depth: 128, Values: 50_000, Members: 10_000, Metadata: 1000, Operations: 2000}
	if got := newBuild(NewLive(c, false), field).bounds().Bodies; got != want {
		t.Errorf("by default: %+v, want %+v", got, want)
	}
	c.Limits.Bodies = config.BodyLimits{Values: 7}
	const none = controlplane.Unlimited
	want = controlplane.BodyLimits{Depth: none, Values: 7, Members: none, Metadata: none, Operations: none}
	if got := newBuild(NewLive(c, false), field).bounds().Bodies; got != want {
		t.Errorf("with 0: %+v, want %+v", got, want)
	}
}

func loginOf(user, address string) authn.Login {
	return authn.Login{User: user, Groups: []string{"system:authenticated"}, Server: "https://" + address}
}

// clientOf returns a client without limits of its own.
func clientOf(t *testing.T, kubeconfig []byte) rest.Interface {
	t.Helper()
	c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	c.QPS = -1
	client, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client.RESTClient()
}
