package services_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/services"
)

// far is the API server of a group, and what is said about it.
type far struct {
	asked atomic.Int32 // for discovery
	wrote atomic.Int32 // status of APIServices, by anybody
}

func (f *far) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/v1") {
		f.asked.Add(1)
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"path": %q}`, r.URL.Path)
}

// Install counts writes of the status of remote APIServices.
func (f *far) Install(p *controlplane.Plan) error {
	p.Wrap(controlplane.Innermost, "count", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, "/apiservices/v1.far.example.com/status") {
				f.wrote.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	return nil
}

// announce creates the APIService of far.example.com, at the Service default/far.
func announce(t *testing.T, p *planetest.Plane, ca []byte) {
	t.Helper()
	_, err := registration(t, p).ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.far.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "far.example.com", Version: "v1", GroupPriorityMinimum: 500, VersionPriority: 10, CABundle: ca,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "far"},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func registration(t *testing.T, p *planetest.Plane) *clientset.Clientset {
	t.Helper()
	c, err := clientset.NewForConfig(p.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// becomes waits for condition Available, as "True Passed: all checks passed".
func becomes(t *testing.T, p *planetest.Plane, want string) {
	t.Helper()
	c := registration(t, p)
	until(t, func() error {
		s, err := c.ApiregistrationV1().APIServices().Get(t.Context(), "v1.far.example.com", metav1.GetOptions{})
		if err != nil {
			return err
		}
		got := ""
		for _, condition := range s.Status.Conditions {
			if condition.Type == apiregistrationv1.Available {
				got = fmt.Sprintf("%s %s: %s", condition.Status, condition.Reason, condition.Message)
			}
		}
		if !strings.HasPrefix(got, want) {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
}

// answers waits until the aggregator proxies a request.
func answers(t *testing.T, p *planetest.Plane) {
	t.Helper()
	const path = "/apis/far.example.com/v1/things"
	until(t, func() error {
		body, err := p.Client().CoreV1().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if want := fmt.Sprintf(`{"path": %q}`, path); err != nil || string(body) != want {
			return fmt.Errorf("got %s, %w, want %s", body, err, want)
		}
		return nil
	})
}

// TestAPIService: a remote API server is available while it answers, by what the API says
// of its Service.
func TestAPIService(t *testing.T) {
	t.Parallel()
	f := &far{}
	s := serve(t, "far.default.svc", f)
	p := start(t, f, aggregator.APIServices{})
	announce(t, p, s.ca)
	becomes(t, p, `False ServiceNotFound: service "default/far" does not exist`)
	_, err := p.Client().CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "far"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	becomes(t, p, `False ServicePortError: service "default/far" has no port 443`)
	if err := p.Client().CoreV1().Services("default").Delete(t.Context(), "far", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	service(t, p, "far")
	becomes(t, p, `False EndpointsNotFound: service "default/far" has no endpoints`)
	slice(t, p, "far", s.port, true)
	becomes(t, p, "True Passed: all checks passed")
	answers(t, p)

	asked, wrote := f.asked.Load(), f.wrote.Load()
	until(t, func() error {
		if got := f.asked.Load(); got < asked+2 {
			return fmt.Errorf("the server was asked %d times, want it asked again", got)
		}
		return nil
	})
	if got := f.wrote.Load(); got != wrote {
		t.Errorf("the status was written %d times while nothing changed", got-wrote)
	}

	s.Close()
	becomes(t, p, "False FailedDiscoveryCheck: failing or missing response from https://"+s.address()+"/readyz: ")
	again(t, s, f)
	becomes(t, p, "True Passed: all checks passed")
	answers(t, p)
}

// again starts a server that was closed, at the same address.
func again(t *testing.T, s *server, h http.Handler) {
	t.Helper()
	listener, err := net.Listen("tcp", s.address())
	if err != nil {
		t.Fatal(err)
	}
	next := httptest.NewUnstartedServer(h)
	_ = next.Listener.Close() // for another one
	next.Listener, next.TLS = listener, &tls.Config{Certificates: s.TLS.Certificates}
	next.StartTLS()
	t.Cleanup(next.Close)
}

// TestAPIServiceByAddress: the address of the Service is enough, and the certificate must
// be for it.
func TestAPIServiceByAddress(t *testing.T) {
	t.Parallel()
	s, other := serve(t, "far.default.svc", &far{}), serve(t, "other.default.svc", &far{})
	cases := map[string]struct {
		reason string
		server *server
		want   string
	}{
		"right": {"it is who it must be", s, "True Passed: all checks passed"},
		"wrong": {
			"another Service has its own name", other,
			"False FailedDiscoveryCheck: failing or missing response from https://" + other.address() +
				"/readyz: tls: failed to verify certificate: x509: certificate is valid for other.default.svc, not far.default.svc",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Log(c.reason)
			p := start(t, services.Addresses{"default/far": c.server.address()}, aggregator.APIServices{})
			announce(t, p, c.server.ca)
			becomes(t, p, c.want)
			if name == "right" {
				answers(t, p)
			}
		})
	}
}
