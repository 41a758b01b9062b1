package aggregator_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// remoteService is the APIService of a server elsewhere.
func remoteService(ca []byte) *apiregistrationv1.APIService {
	return &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.far.example.com"},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: "far.example.com", Version: "v1", GroupPriorityMinimum: 500, VersionPriority: 10,
			Service: &apiregistrationv1.ServiceReference{Namespace: "elsewhere", Name: "api"}, CABundle: ca,
		},
	}
}

// remote starts an API server with a certificate for the name of its Service. It
// keeps the Accept-Encoding of the last request for things.
func remote(t *testing.T, accepted *atomic.Value) (at *url.URL, ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"api.elsewhere.svc"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/things") { // and not the aggregator, which looks at its documents
			accepted.Store(r.Header.Get("Accept-Encoding"))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind": "Answer", "path": %q, "user": %q}`, r.URL.RequestURI(), r.Header.Get("X-Remote-User"))
	}))
	s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	s.StartTLS()
	t.Cleanup(s.Close)
	at, err = url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return at, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// resolver finds one Service, while it is told to.
type resolver struct {
	at     *url.URL
	failed atomic.Bool
}

func (r *resolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if got := fmt.Sprintf("%s/%s:%d", namespace, name, port); got != "elsewhere/api:443" {
		return nil, errors.New("asked for " + got)
	}
	if r.failed.Load() {
		return nil, errors.New("the map to elsewhere/api is lost")
	}
	return r.at, nil
}

// resolving is the part of a resolver.
func resolving(r controlplane.ServiceResolver) controlplane.Part {
	return controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.ResolveServices("test", r)
		return nil
	})
}

// becomes waits for the Available condition of the APIService elsewhere.
func becomes(t *testing.T, config *rest.Config, want string) {
	t.Helper()
	eventually(t, "condition Available", func() error {
		if got := all(t, config)["v1.far.example.com"]; got != want {
			return fmt.Errorf("it is %q, want %q", got, want)
		}
		return nil
	})
}

// TestRemote: where its Service is found, a remote API server answers for its group.
func TestRemote(t *testing.T) {
	t.Parallel()
	var accepted atomic.Value
	at, ca := remote(t, &accepted)
	r := &resolver{at: at}
	config, _ := run(t, memory.Store{}, aggregator.APIServices{}, resolving(r))
	if _, err := services(t, config).ApiregistrationV1().APIServices().Create(t.Context(), remoteService(ca), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/far.example.com/v1/things"
	eventually(t, "a proxied GET", func() error {
		body, status := get(t, config, path, "application/json")
		if want := `{"kind": "Answer", "path": "` + path + `", "user": "system:apiserver"}`; status != http.StatusOK || body != want {
			return fmt.Errorf("%d %s, want %s", status, body, want)
		}
		return nil
	})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	const accepts = "identity, gzip"
	if err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept-Encoding", accepts).Do(t.Context()).Error(); err != nil {
		t.Error(err)
	}
	if got := accepted.Load(); got != accepts {
		t.Errorf("the remote server is asked for %v, want what the client accepts, %q", got, accepts)
	}
	becomes(t, config, "True Passed")
	r.failed.Store(true)
	becomes(t, config, "False FailedDiscoveryCheck")
	body, status := get(t, config, path, "application/json")
	if status != http.StatusServiceUnavailable {
		t.Errorf("without an address: %d, want 503", status)
	}
	if !strings.Contains(body, "condition Available of APIService") || strings.Contains(body, "the map") {
		t.Errorf("without an address: %q, want where to read what the resolver says", body)
	}
	r.failed.Store(false)
	becomes(t, config, "True Passed")
}
