package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/test/program"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// content is how many objects a namespace or an owner holds when it is deleted.
const content = 300

// TestKillWhileDeleting kills a server while it empties a namespace and
// collects what an owner left. The next one finishes both.
func TestKillWhileDeleting(t *testing.T) {
	for name, storage := range storages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			halfway := 0
			for round := range 3 {
				p := serve(t, dir, storage(dir))
				c := dial(t, p)
				ns := fmt.Sprint("round-", round)
				begin(t, c, ns)
				time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
				p.Kill()
				p = serve(t, dir, storage(dir))
				if finish(t, dial(t, p), ns) {
					halfway++
				}
				if err := p.Interrupt(); err != nil {
					t.Error(err)
				}
			}
			t.Logf("%d of 3 kills left something to do", halfway)
		})
	}
}

func dial(t *testing.T, p *program.Process) *kubernetes.Clientset {
	t.Helper()
	c, err := client(p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// begin fills a namespace and deletes it, and an owner in another one. One
// object that owns nothing is to stay.
func begin(t *testing.T, c *kubernetes.Clientset, ns string) {
	t.Helper()
	ctx := t.Context()
	if _, err := c.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	root := configMap(t, c, "default", ns+"-root")
	configMap(t, c, "default", ns+"-stays")
	for i := range content {
		configMap(t, c, ns, fmt.Sprint("cm-", i))
		configMap(t, c, "default", fmt.Sprint(ns, "-child-", i), metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: root.Name, UID: root.UID,
		})
	}
	if err := c.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	policy := metav1.DeletePropagationBackground
	if err := c.CoreV1().ConfigMaps("default").Delete(ctx, root.Name, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		t.Fatal(err)
	}
}

func configMap(t *testing.T, c *kubernetes.Clientset, ns, name string, owners ...metav1.OwnerReference) *v1.ConfigMap {
	t.Helper()
	cm, err := c.CoreV1().ConfigMaps(ns).Create(t.Context(),
		&v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// finish waits until what was begun is done. It tells whether anything was left.
func finish(t *testing.T, c *kubernetes.Clientset, ns string) (left bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), program.Patience)
	defer cancel()
	for {
		_, err := c.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		list, listErr := c.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		if listErr != nil {
			t.Fatal(listErr)
		}
		children, stays := 0, false
		for _, cm := range list.Items {
			stays = stays || cm.Name == ns+"-stays"
			if len(cm.OwnerReferences) > 0 {
				children++
			}
		}
		if !stays {
			t.Fatal("an object without an owner was deleted")
		}
		if apierrors.IsNotFound(err) && children == 0 {
			return left
		}
		left = true
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not done: %d dependents are left, namespace: %v", children, err)
		}
	}
}
