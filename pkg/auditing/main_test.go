package auditing_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// everybody is known by the bearer token, which is the name, and may do everything.
func everybody() controlplane.Part {
	return controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Authenticate("names", authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
			name := r.Header.Get("X-Name")
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, name != "", nil
		}))
		p.Authorize("all", authorizerfactory.NewAlwaysAllowAuthorizer())
		return nil
	})
}

func builder(parts ...controlplane.Part) *controlplane.Builder {
	return controlplane.New("audit-test").Storage(memory.Store{}).
		With(everybody(), core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}).With(parts...)
}

// serve runs a server until stop, which waits for it, and returns the client of a user.
func serve(t *testing.T, name string, parts ...controlplane.Part) (client *kubernetes.Clientset, stop func()) {
	t.Helper()
	server, err := builder(parts...).Build()
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	front := httptest.NewServer(server.Handler())
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		front.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	select {
	case <-server.Ready():
	case err := <-done:
		done <- nil
		t.Fatalf("run: %v", err)
	case <-time.After(2 * time.Minute):
		t.Fatal("the server is not ready after two minutes")
	}
	client, err = kubernetes.NewForConfig(&rest.Config{Host: front.URL, QPS: -1, WrapTransport: func(next http.RoundTripper) http.RoundTripper {
		return named{name, next}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return client, stop
}

// named adds the user's name to requests.
type named struct {
	name string
	next http.RoundTripper
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("X-Name", n.name)
	return n.next.RoundTrip(r)
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }
