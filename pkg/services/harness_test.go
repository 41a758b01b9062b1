package services_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"
	"time"

	admissionreview "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/services"
)

// TestMain looks for goroutines that outlive their planes.
func TestMain(m *testing.M) { os.Exit(leaktest.Run(m)) }

// certificate is one for a name, which signed itself.
func certificate(t *testing.T, name string) (serving tls.Certificate, ca []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// server is a TLS server on the loopback address.
type server struct {
	*httptest.Server
	ca   []byte
	port int32
}

// serve starts a server with a certificate for a name.
func serve(t *testing.T, name string, h http.Handler) *server {
	t.Helper()
	s := &server{Server: httptest.NewUnstartedServer(h)}
	var serving tls.Certificate
	serving, s.ca = certificate(t, name)
	s.TLS = &tls.Config{Certificates: []tls.Certificate{serving}}
	s.StartTLS()
	t.Cleanup(s.Close)
	_, port, err := net.SplitHostPort(s.address())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	s.port = int32(n)
	return s
}

func (s *server) address() string { return s.Listener.Addr().String() }

// refuse answers reviews with no.
func refuse(w http.ResponseWriter, r *http.Request) {
	var review admissionreview.AdmissionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	review.Response = &admissionreview.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "no thanks"}}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// service creates a Service with the port 443, named https, in namespace default.
func service(t *testing.T, p *planetest.Plane, name string) {
	t.Helper()
	_, err := p.Client().CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
			{Name: "metrics", Port: 8080}, {Name: "https", Port: 443, TargetPort: intstr.FromString("webhook")},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// slice creates an EndpointSlice of a Service, with an endpoint on the loopback address.
func slice(t *testing.T, p *planetest.Plane, name string, port int32, ready bool) {
	t.Helper()
	https, metrics, nowhere := "https", "metrics", int32(1)
	_, err := p.Client().DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &metrics, Port: &nowhere}, {Name: &https, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"127.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a plane with what Services need, and more. Its kinds of endpoints are those
// of Kubernetes without the validation, which refuses loopback addresses in them.
func start(t *testing.T, more ...controlplane.Part) *planetest.Plane {
	t.Helper()
	parts := []controlplane.Part{
		core.Namespaces{},
		core.ConfigMaps{},
		core.Services{},
		services.Resolver{},
		apis.NewGroup(discoveryv1.SchemeGroupVersion, nil, nil,
			apis.Resource[discoveryv1.EndpointSlice, discoveryv1.EndpointSliceList]("endpointslices")),
		//nolint:staticcheck // deprecated, and still written by hand
		apis.NewGroup(corev1.SchemeGroupVersion, nil, nil, apis.Resource[corev1.Endpoints, corev1.EndpointsList]("endpoints")),
	}
	return planetest.Options{NoDefaults: true}.Start(t, append(parts, more...)...)
}

// until waits for something to hold.
func until(t *testing.T, holds func() error) {
	t.Helper()
	var err error
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if err = holds(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
