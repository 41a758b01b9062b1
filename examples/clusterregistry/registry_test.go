package main

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// serve starts a registry with its roles.
func serve(t testing.TB, s config, more ...string) *planetest.Plane {
	t.Helper()
	parts, err := s.parts()
	if err != nil {
		t.Fatal(err)
	}
	plane := planetest.Options{NoDefaults: true, Kubeconfig: true}.Start(t, parts...)
	plane.Apply(t, planetest.Files(append(more, "roles.yaml")...))
	return plane
}

func clientOf(t testing.TB, plane *planetest.Plane) client.Client {
	t.Helper()
	c, err := newClient(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// cluster is a cluster with a server.
func cluster(name string) *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.DefaultNamespace, Name: name}}
	c.Spec.KubernetesAPIEndpoints.ServerEndpoints = []v1alpha1.ServerAddressByClientCIDR{{ServerAddress: name + ".example.com"}}
	return c
}

// create creates clusters called NAME-NUMBER.
func create(t testing.TB, c client.Client, name string, n int) {
	t.Helper()
	for i := range n {
		if err := c.Create(t.Context(), cluster(fmt.Sprintf("%s-%05d", name, i))); err != nil {
			t.Fatal(err)
		}
	}
}

func names(list *v1alpha1.ClusterList) []string {
	var all []string
	for _, c := range list.Items {
		all = append(all, c.Name)
	}
	return all
}

func TestArchivedObjects(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true})
	applied := plane.Apply(t, planetest.Files("testdata/archived.yaml"))
	var got v1alpha1.Cluster
	if err := clientOf(t, plane).Get(t.Context(), client.ObjectKeyFromObject(applied[1]), &got); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.ClusterSpec{
		KubernetesAPIEndpoints: v1alpha1.KubernetesAPIEndpoints{ServerEndpoints: []v1alpha1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: "100.0.0.0"}, {ClientCIDR: "10.0.0.0/8", ServerAddress: "https://10.1.2.3:6443"},
		}},
		AuthInfo: v1alpha1.AuthInfo{
			Controller: &v1alpha1.ObjectReference{Kind: "Secret", Namespace: "kube-multicluster-public", Name: "us-east-controller"},
			User:       &v1alpha1.ObjectReference{Kind: "ConfigMap", Name: "how-to-log-in"},
		},
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if len(got.Status.Conditions) != 0 {
		t.Errorf("a write of the cluster wrote its status: %v", got.Status)
	}
}

func TestPutCreates(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true})
	for _, want := range []int{201, 200} {
		var code int
		err := plane.Client().CoreV1().RESTClient().Put().
			AbsPath("/apis/clusterregistry.k8s.io/v1alpha1/namespaces/kube-multicluster-public/clusters/east").
			Body([]byte(`{"apiVersion":"clusterregistry.k8s.io/v1alpha1","kind":"Cluster","metadata":{"name":"east"}}`)).
			Do(t.Context()).StatusCode(&code).Error()
		if err != nil || code != want {
			t.Errorf("PUT: %d, %v, want %d", code, err, want)
		}
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	c := clientOf(t, serve(t, config{watch: true}))
	cases := map[string]struct {
		reason string
		change func(*v1alpha1.KubernetesAPIEndpoints)
	}{
		"http":     {"credentials would go in the clear", func(e *v1alpha1.KubernetesAPIEndpoints) { e.ServerEndpoints[0].ServerAddress = "http://a" }},
		"password": {"it is a secret", func(e *v1alpha1.KubernetesAPIEndpoints) { e.ServerEndpoints[0].ServerAddress = "https://a:b@c" }},
		"empty":    {"nobody can reach it", func(e *v1alpha1.KubernetesAPIEndpoints) { e.ServerEndpoints[0].ServerAddress = "" }},
		"network":  {"it is for no client", func(e *v1alpha1.KubernetesAPIEndpoints) { e.ServerEndpoints[0].ClientCIDR = "10.0.0" }},
		"ca":       {"it verifies nothing", func(e *v1alpha1.KubernetesAPIEndpoints) { e.CABundle = []byte("PEM") }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refused := cluster(name)
			tc.change(&refused.Spec.KubernetesAPIEndpoints)
			if err := c.Create(t.Context(), refused); !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v, want Invalid", tc.reason, err)
			}
		})
	}
}

func TestWithoutWatch(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{provider: "token"})
	for _, gv := range []string{"clusterregistry.k8s.io/v1alpha1", "multicluster.x-k8s.io/v1alpha1"} {
		list, err := plane.Discovery().ServerResourcesForGroupVersion(gv)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "watch") {
				t.Errorf("%s %s is said to have watches", gv, r.Name)
			}
			err := plane.Client().CoreV1().RESTClient().Get().AbsPath("/apis/"+gv, r.Name).Param("watch", "true").Do(t.Context()).Error()
			if r.Name == "clusters" && !apierrors.IsMethodNotSupported(err) {
				t.Errorf("watch of %s: %v, want 405", r.Name, err)
			}
		}
	}
}

// TestLists: who may get some clusters gets them, in pages that count them only.
func TestLists(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true})
	create(t, clientOf(t, plane), "cluster", 40)
	mine := []string{"cluster-00003", "cluster-00017", "cluster-00018", "cluster-00039"}
	allow(t, plane, "ann", mine)
	ann := clientOf(t, plane.As("ann"))
	plane.Eventually(t, func(ctx context.Context) error {
		return ann.Get(ctx, client.ObjectKey{Namespace: v1alpha1.DefaultNamespace, Name: mine[0]}, &v1alpha1.Cluster{})
	})
	var got []string
	for page := (v1alpha1.ClusterList{}); ; {
		token := page.Continue
		page = v1alpha1.ClusterList{}
		if err := ann.List(t.Context(), &page, client.Limit(3), client.Continue(token)); err != nil {
			t.Fatal(err)
		}
		if len(page.Items) > 3 {
			t.Errorf("a page of 3 has %d clusters", len(page.Items))
		}
		if page.Continue != "" && page.RemainingItemCount != nil && *page.RemainingItemCount != int64(len(mine)-len(got)-len(page.Items)) {
			t.Errorf("%d clusters are said to remain after %d", *page.RemainingItemCount, len(got)+len(page.Items))
		}
		if got = append(got, names(&page)...); page.Continue == "" {
			break
		}
	}
	if diff := cmp.Diff(mine, got); diff != "" {
		t.Errorf("clusters in pages (-want +got):\n%s", diff)
	}
	var all v1alpha1.ClusterList
	if err := clientOf(t, plane.As("bob")).List(t.Context(), &all, client.InNamespace(v1alpha1.DefaultNamespace)); !apierrors.IsForbidden(err) {
		t.Errorf("who may get nothing lists: %v, want Forbidden", err)
	}
}

// allow lets a user get clusters by name.
func allow(t testing.TB, plane *planetest.Plane, user string, names []string) {
	t.Helper()
	plane.Apply(t, planetest.Objects(
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: v1alpha1.DefaultNamespace},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{v1alpha1.GroupVersion().Group}, Resources: []string{"clusters"}, Verbs: []string{"get"}, ResourceNames: names,
			}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user, Namespace: v1alpha1.DefaultNamespace},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
		}))
}

// TestPublic: everybody reads, and registrars write.
func TestPublic(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true, provider: "token"}, "public.yaml")
	reader, registrar := clientOf(t, plane.As("ann")), clientOf(t, plane.As("rick", "registrars"))
	plane.Eventually(t, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(registrar.Create(ctx, cluster("east")))
	})
	var list v1alpha1.ClusterList
	plane.Eventually(t, func(ctx context.Context) error { return reader.List(ctx, &list) })
	if diff := cmp.Diff([]string{"east"}, names(&list)); diff != "" {
		t.Errorf("clusters (-want +got):\n%s", diff)
	}
	if err := reader.Create(t.Context(), cluster("west")); !apierrors.IsForbidden(err) {
		t.Errorf("a reader creates a cluster: %v, want Forbidden", err)
	}
	if err := reader.Delete(t.Context(), cluster("east")); !apierrors.IsForbidden(err) {
		t.Errorf("a reader deletes a cluster: %v, want Forbidden", err)
	}
}

// BenchmarkList lists 10,000 clusters as a user who may get ten.
func BenchmarkList(b *testing.B) {
	plane := serve(b, config{watch: true})
	create(b, clientOf(b, plane), "cluster", 10_000)
	var ten []string
	for i := range 10 {
		ten = append(ten, fmt.Sprintf("cluster-%05d", i*1000))
	}
	allow(b, plane, "ann", ten)
	ann := plane.As("ann").Client().CoreV1().RESTClient().Get().AbsPath("/apis/clusterregistry.k8s.io/v1alpha1/clusters")
	plane.Eventually(b, func(ctx context.Context) error {
		var list v1alpha1.ClusterList
		err := clientOf(b, plane.As("ann")).List(ctx, &list)
		if err == nil && len(list.Items) != len(ten) {
			err = fmt.Errorf("%d clusters", len(list.Items))
		}
		return err
	})
	for b.Loop() {
		if _, err := ann.DoRaw(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
