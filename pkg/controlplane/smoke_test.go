package controlplane_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/kine/memory"
)

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	s, err := controlplane.New("smoke").Listen("127.0.0.1:0").Storage(memory.Store{}).With(
		authn.Admin{Kubeconfig: dir + "/k"}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, aggregator.APIServices{},
	).Build()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begun := time.Now()
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("not ready")
	}
	t.Logf("ready in %v at %v", time.Since(begun), s.Address())
	c, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Error(err)
	}
	l, err := c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	t.Log(l, err)
	cancel()
	begun = time.Now()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped in %v", time.Since(begun))
}
