package controlplane_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestPlanesShareAddresses: failures in one plane of a server count in all, by the
// address of the connection, and the server's own clients have none.
func TestPlanesShareAddresses(t *testing.T) {
	t.Parallel()
	const burst = 4
	s, err := controlplane.New("apples").Storage(memory.Store{}).With(core.Namespaces{}).Limits(controlplane.Limits{
		Addresses: controlplane.AddressLimits{FailureBurst: burst, FailuresPerSecond: 1e-6, Trusted: []netip.Prefix{}},
	}).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	p, err := s.Plane(t.Context(), "more", core.Namespaces{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(h http.Handler, address string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "/api/v1/namespaces", nil)
		r.RemoteAddr = address
		r.Header.Set("X-Forwarded-For", "198.51.100.1")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	for n := range burst {
		if w := ask([]http.Handler{s.Handler(), p.Handler()}[n%2], "192.0.2.1:1234"); w.Code != http.StatusUnauthorized {
			t.Errorf("failure %d: %d, want 401", n, w.Code)
		}
	}
	for name, h := range map[string]http.Handler{"root": s.Handler(), "plane": p.Handler()} {
		w := ask(h, "192.0.2.1:4321")
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusTooManyRequests || status.Code != http.StatusTooManyRequests {
			t.Errorf("%s: %d %s: %v, want a Status with 429", name, w.Code, w.Body, err)
		}
		if w.Header().Get("Retry-After") == "" || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: %v: want Retry-After, and the end of the connection", name, w.Header())
		}
		if w := ask(h, "192.0.2.2:1234"); w.Code != http.StatusUnauthorized {
			t.Errorf("%s: another address gets %d, want 401", name, w.Code)
		}
	}
	if _, err := client(t, s.ClientConfig()).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("the server's own client: %v", err)
	}
}

// TestHTTP1: what bounds a client's certificates bounds no body.
func TestHTTP1(t *testing.T) {
	t.Parallel()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	s, err := controlplane.New(t.Name()).Storage(memory.Store{}).Listen("127.0.0.1:0").
		With(core.Namespaces{}, core.ConfigMaps{}, authn.Admin{Kubeconfig: kubeconfig}).Build()
	if err != nil {
		t.Fatal(err)
	}
	run(t, s)
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"} // with HTTP/2 the server speaks first
	large := configMap("large")
	large.Data["k"] = strings.Repeat("v", 500<<10)
	if _, err := client(t, config).CoreV1().ConfigMaps("default").Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// TestAddressLimitsThatMeanNothing: Build names them.
func TestAddressLimitsThatMeanNothing(t *testing.T) {
	t.Parallel()
	_, err := controlplane.New("apples").Storage(memory.Store{}).With(core.Namespaces{}).Limits(controlplane.Limits{
		HeaderTime: -5, BodyTime: -5,
		Addresses: controlplane.AddressLimits{
			Connections: -2, HandshakesPerSecond: math.NaN(), HandshakeBurst: -2, FailuresPerSecond: -0.5, FailureBurst: -2,
			Trusted: []netip.Prefix{{}},
		},
	}).Build()
	if err == nil {
		t.Fatal("Build takes them")
	}
	for _, field := range []string{
		"HeaderTime", "BodyTime", "Addresses.Connections", "Addresses.HandshakesPerSecond", "Addresses.HandshakeBurst",
		"Addresses.FailuresPerSecond", "Addresses.FailureBurst", "Addresses.Trusted",
	} {
		if !strings.Contains(err.Error(), "limits: "+field+" ") {
			t.Errorf("nothing about %s: %v", field, err)
		}
	}
}
