//go:build !race

package guard

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

const (
	wireRuns = 20
	// wireListed are so many that their JSON is compressed, and that of shortPage
	// of them is not.
	wireListed = 200
	shortPage  = 20
)

// TestBytes counts what a client reads from its connection for an answer: what
// TLS and HTTP/2 add is in it.
func TestBytes(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	s := start(t, controlplane.New("guard").Listen("127.0.0.1:0").With(parts(), authn.Admin{Kubeconfig: kubeconfig}))
	fillListed(t, s, wireListed)
	counts := budgets{}
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		var read atomic.Int64
		config.QPS, config.ContentType = -1, contentType
		config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return counted{c, &read}, err
		}
		c, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		configMaps := c.CoreV1().ConfigMaps(namespace)
		list := func(limit int64) func() error {
			return func() error {
				_, err := configMaps.List(t.Context(), metav1.ListOptions{Limit: limit})
				return err
			}
		}
		for name, do := range map[string]func() error{
			"get": func() error {
				_, err := configMaps.Get(t.Context(), "cm-0000", metav1.GetOptions{})
				return err
			},
			fmt.Sprint("list of ", shortPage):  list(shortPage),
			fmt.Sprint("list of ", wireListed): list(0),
		} {
			if err := do(); err != nil { // the handshake and the headers that repeat
				t.Fatal(err)
			}
			before := read.Load()
			for range wireRuns {
				if err := do(); err != nil {
					t.Fatal(err)
				}
			}
			counts[fmt.Sprintf("bytes of a %s, %s", name, contentType)] = float64(read.Load()-before) / wireRuns
		}
	}
	check(t, counts)
}

// counted is a connection that counts what is read from it.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}
