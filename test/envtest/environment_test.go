package envtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/sailplane-dev/sailplane/test/crds"
)

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

func TestObjects(t *testing.T) {
	t.Parallel()
	_, c := start(t, &envtest.Environment{})
	ctx := t.Context()
	w, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace("default"), client.MatchingFields{"metadata.name": "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if err := c.Create(ctx, configMap("default", "one")); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, configMap("default", "one")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []watch.EventType{watch.Added, watch.Deleted} {
		if e := <-w.ResultChan(); e.Type != want {
			t.Errorf("the watch has %s, want %s", e.Type, want)
		}
	}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}); err != nil {
			t.Errorf("namespace %s: %v, want it as with kube-apiserver", name, err)
		}
	}
}

func TestServices(t *testing.T) {
	t.Parallel()
	env := &envtest.Environment{}
	env.ControlPlane.GetAPIServer().Configure().
		Set("service-cluster-ip-range", "10.9.8.0/29").Set("service-node-port-range", "31000-31001")
	_, c := start(t, env)
	ctx := t.Context()
	var itself corev1.Service
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "kubernetes"}, &itself); err != nil {
		t.Fatal(err)
	}
	if itself.Spec.ClusterIP != "10.9.8.1" {
		t.Errorf("service kubernetes has %s, want the first of the range", itself.Spec.ClusterIP)
	}
	service := func(name string, kind corev1.ServiceType, ip string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.ServiceSpec{
			Type: kind, ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80}},
		}}
	}
	seen := map[string]string{itself.Spec.ClusterIP: "kubernetes"}
	for i := range 5 { // 8 addresses, less those of the network, its broadcast and the API server
		s := service(fmt.Sprintf("s%d", i), corev1.ServiceTypeClusterIP, "")
		if err := c.Create(ctx, s); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(s.Spec.ClusterIP, "10.9.8.") || seen[s.Spec.ClusterIP] != "" {
			t.Errorf("service %s has address %q, want one of the range that nobody has: %v", s.Name, s.Spec.ClusterIP, seen)
		}
		seen[s.Spec.ClusterIP] = s.Name
	}
	if err := c.Create(ctx, service("full", corev1.ServiceTypeClusterIP, "")); err == nil || !strings.Contains(err.Error(), "no address") {
		t.Errorf("one more: %v, want an error that no address is free", err)
	}
	headless := service("headless", corev1.ServiceTypeClusterIP, "None")
	if err := c.Create(ctx, headless); err != nil {
		t.Fatal(err)
	}
	if got := headless.Spec.IPFamilies; headless.Spec.ClusterIP != "None" || len(got) != 1 || got[0] != corev1.IPv4Protocol {
		t.Errorf("the headless service has address %s and families %v, want None and IPv4", headless.Spec.ClusterIP, got)
	}
	// What a deleted service had is free again.
	if err := c.Delete(ctx, service("s0", "", "")); err != nil {
		t.Fatal(err)
	}
	node := service("node", corev1.ServiceTypeNodePort, "")
	eventually(t, "an address that is free again", func(ctx context.Context) error { return c.Create(ctx, node) })
	if port := node.Spec.Ports[0].NodePort; port < 31000 || port > 31001 {
		t.Errorf("the node port is %d, want one of the range", port)
	}
}

// TestNamespaceDeletion is what the binaries of Kubernetes cannot do alone.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	_, c := start(t, &envtest.Environment{})
	ctx := t.Context()
	for name, finalize := range map[string]bool{
		"left-alone": false,
		"finalized":  true, // by the test, as suites do that know no better
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Create(ctx, ns); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(ctx, configMap(name, "content")); err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(ctx, ns); err != nil {
			t.Fatal(err)
		}
		if finalize {
			ns.Spec.Finalizers = nil
			if err := c.SubResource("finalize").Update(ctx, ns); err != nil {
				t.Errorf("finalize %s: %v, want no error although it is gone", name, err)
			}
		}
		eventually(t, "namespace "+name+" is gone", func(ctx context.Context) error {
			return gone(c.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{}))
		})
		if err := gone(c.Get(ctx, client.ObjectKey{Namespace: name, Name: "content"}, &corev1.ConfigMap{})); err != nil && !finalize {
			t.Errorf("the content of %s: %v", name, err)
		}
	}
}

// gone is nil for the error that an object is not found.
func gone(err error) error {
	if err == nil {
		return errors.New("it is still there")
	}
	return client.IgnoreNotFound(err)
}

func TestCRDs(t *testing.T) {
	t.Parallel()
	var files []string
	for _, set := range crds.Sets() {
		if set.Name == "gateway-api" {
			var err error
			if files, err = set.Files(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	env := &envtest.Environment{
		CRDDirectoryPaths: files, ErrorIfCRDPathMissing: true,
		CRDInstallOptions: envtest.CRDInstallOptions{MaxTime: patience}, // by default 10 s
	}
	_, c := start(t, env)
	ctx := t.Context()
	if len(env.CRDs) == 0 {
		t.Fatal("no CRD was installed")
	}
	class := &unstructured.Unstructured{}
	class.SetGroupVersionKind(schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "GatewayClass"})
	class.SetName("wind")
	if err := c.Create(ctx, class.DeepCopy()); !apierrors.IsInvalid(err) {
		t.Errorf("an object without spec: %v, want it invalid", err)
	}
	if err := unstructured.SetNestedField(class.Object, "example.com/wind", "spec", "controllerName"); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, class); err != nil {
		t.Fatal(err)
	}
	if conditions, _, err := unstructured.NestedSlice(class.Object, "status", "conditions"); err != nil || len(conditions) != 1 {
		t.Errorf("its conditions are %v (%v), want the default of the schema", conditions, err)
	}
	if err := envtest.UninstallCRDs(env.Config, env.CRDInstallOptions); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the kind is gone", func(ctx context.Context) error {
		return gone(c.Get(ctx, client.ObjectKeyFromObject(class), class))
	})
}
