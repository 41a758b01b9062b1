package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trees.garden.example.com}
spec:
  group: garden.example.com
  scope: Namespaced
  names: {plural: trees, singular: tree, kind: Tree, listKind: TreeList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              cultivar: {type: string, maxLength: 20}
              secret: {type: boolean}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

func definitions() fstest.MapFS { return fstest.MapFS{"trees.yaml": {Data: []byte(definition)}} }

var (
	trees  = schema.GroupVersionResource{Group: "garden.example.com", Version: "v1", Resource: "trees"}
	apples = fruit.GroupVersion().WithResource("apples")
)

// view shows trees that are no secret.
func view(over apis.Backing) *apis.Group {
	return apis.NewGroup(fruit.GroupVersion(), nil, nil, apis.Project[fruit.Apple, fruit.AppleList]("apples", over,
		func(tree *unstructured.Unstructured, a *fruit.Apple) bool {
			a.Spec.Variety, _, _ = unstructured.NestedString(tree.Object, "spec", "cultivar")
			a.Status.Ripe, _, _ = unstructured.NestedBool(tree.Object, "status", "ripe")
			secret, _, _ := unstructured.NestedBool(tree.Object, "spec", "secret")
			return !secret
		},
		func(a *fruit.Apple, tree *unstructured.Unstructured) error {
			return errors.Join(unstructured.SetNestedField(tree.Object, a.Spec.Variety, "spec", "cultivar"),
				unstructured.SetNestedField(tree.Object, a.Status.Ripe, "status", "ripe"))
		}, apis.Status()))
}

func apple(name, variety string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": fruit.GroupVersion().String(), "kind": "Apple",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"variety": variety},
	}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// in is a resource in a namespace of a plane.
func in(p *planetest.Plane, namespace string, r schema.GroupVersionResource) dynamic.ResourceInterface {
	return p.Dynamic().Resource(r).Namespace(namespace)
}

func create(t *testing.T, in dynamic.ResourceInterface, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	made, err := in.Create(t.Context(), obj, metav1.CreateOptions{})
	must(t, err)
	return made
}

// TestOverCRD: what is written to a view of a custom resource is stored as that, once.
func TestOverCRD(t *testing.T) {
	t.Parallel()
	p := planetest.Start(t, planetest.WithCRDs(definitions()), view(apis.Over("garden.example.com/v1", "trees")))
	namespace := p.Namespace(t)
	made := create(t, in(p, namespace, apples), apple("gala", "Gala"))
	made.Object["status"] = map[string]any{"ripe": true}
	_, err := in(p, namespace, apples).UpdateStatus(t.Context(), made, metav1.UpdateOptions{})
	must(t, err)
	tree, err := in(p, namespace, trees).Get(t.Context(), "gala", metav1.GetOptions{})
	must(t, err)
	if ripe, _, _ := unstructured.NestedBool(tree.Object, "status", "ripe"); !ripe || tree.GetUID() != made.GetUID() {
		t.Errorf("the tree is %v", tree)
	}
	for _, name := range p.Snapshot(t).Names() {
		if strings.Contains(strings.ToLower(name), "apple") {
			t.Errorf("the plane keeps %s besides the tree", name)
		}
	}
	_, err = in(p, namespace, apples).Create(t.Context(), apple("long", strings.Repeat("x", 30)), metav1.CreateOptions{})
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "trees.garden.example.com") {
		t.Errorf("what the CRD refuses is answered with %v", err)
	}
	// With the right to the view alone a user changes what is below.
	p.Apply(t, planetest.YAML(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: picker}
rules: [{apiGroups: [fruit.example.com], resources: [apples], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: picker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: picker}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: eve}]
`))
	eve := p.As("eve")
	p.Eventually(t, func(ctx context.Context) error {
		return in(eve, namespace, apples).Delete(ctx, "gala", metav1.DeleteOptions{})
	})
	if _, err := in(eve, namespace, trees).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the right to the view gives access to what is below: %v", err)
	}
}

// TestLifecycle: quotas, garbage collection and the deletion of namespaces see what is below.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	p := planetest.Start(t, planetest.WithCRDs(definitions()), view(apis.Over("garden.example.com/v1", "trees")))
	namespace := p.Namespace(t)
	quota, err := p.Client().CoreV1().ResourceQuotas(namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/trees.garden.example.com": resource.MustParse("1"), "count/secrets": resource.MustParse("0"),
		}},
	}, metav1.CreateOptions{})
	must(t, err)
	p.WaitFor(t, quota, planetest.JSONPath("{.status.hard}", `{"count/secrets":"0","count/trees.garden.example.com":"1"}`))
	p.Eventually(t, func(ctx context.Context) error { // admission learns of a quota some time after its status
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "refused"}}
		_, err := p.Client().CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) {
			return fmt.Errorf("the quota of secrets does not hold: %w", err)
		}
		return nil
	})
	owner := create(t, in(p, namespace, apples), apple("gala", "Gala"))
	_, err = in(p, namespace, apples).Create(t.Context(), apple("second", "Gala"), metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "exceeded quota") {
		t.Errorf("the quota of trees does not hold for apples: %v", err)
	}
	owned := func(kind schema.GroupVersionKind) *corev1.ConfigMap {
		c, err := p.Client().CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name:            strings.ToLower(kind.Kind),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: owner.GetName(), UID: owner.GetUID()}},
		}}, metav1.CreateOptions{})
		must(t, err)
		return c
	}
	byView, byTree := owned(fruit.GroupVersion().WithKind("Apple")), owned(trees.GroupVersion().WithKind("Tree"))
	must(t, in(p, namespace, apples).Delete(t.Context(), "gala", metav1.DeleteOptions{}))
	p.WaitFor(t, byView, planetest.Gone())
	p.WaitFor(t, byTree, planetest.Gone())
	p.Eventually(t, func(ctx context.Context) error {
		_, err := in(p, namespace, apples).Create(ctx, apple("third", "Gala"), metav1.CreateOptions{})
		return err // the quota has room when it knows of the deletion
	})
	must(t, p.Client().CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
	p.WaitFor(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, planetest.Gone())
	left, err := p.Dynamic().Resource(apples).List(t.Context(), metav1.ListOptions{})
	must(t, err)
	if len(left.Items) > 0 {
		t.Errorf("the namespace is gone, and %d apples are left", len(left.Items))
	}
}
