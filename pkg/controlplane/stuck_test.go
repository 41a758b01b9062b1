package controlplane_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// untilClosed has watches end with their connections only, as those do whose
// client does not read.
func untilClosed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r)
		if r.URL.Query().Get("watch") != "" && !middleware.Internal(r) {
			<-r.Context().Done()
		}
	})
}

// TestStopEndsWatchesOfWhoDoesNotRead: a client that watches and does not read
// neither keeps a server from stopping nor makes a failure of it.
func TestStopEndsWatchesOfWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	s, err := controlplane.New(t.Name()).Listen("127.0.0.1:0").Storage(memory.Store{}).
		With(authn.Admin{Kubeconfig: file}, core.Namespaces{}, core.ConfigMaps{}, middleware.Innermost("slow clients", untilClosed)).Build()
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	admin, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.X509KeyPair(admin.CertData, admin.KeyData)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", s.Address().String(), &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}, // what the server proves is not what is tested
	})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprint(conn, "GET /api/v1/configmaps?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil { // the answer begins
		t.Fatal(err)
	}
	stop() // fails the test when Run does
}

// TestStopEndsWatchesInProcess: so it is with a client in the process.
func TestStopEndsWatchesInProcess(t *testing.T) {
	t.Parallel()
	s := build(t, core.Namespaces{}, core.ConfigMaps{})
	stop := run(t, s)
	maps := client(t, s.ClientConfig()).CoreV1().ConfigMaps("default")
	large := configMap("")
	large.Data["k"] = strings.Repeat("x", 1<<20-1<<10)
	for i := range 4 { // more than a handler may be ahead of its client
		large.Name = fmt.Sprintf("large-%d", i)
		if _, err := maps.Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	unread, err := client(t, s.ClientConfig()).CoreV1().RESTClient().Get().AbsPath("/api/v1/configmaps").Param("watch", "true").Stream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unread.Close()
	stop()
}
