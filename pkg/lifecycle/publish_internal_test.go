package lifecycle

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestRefused: a refusal is the last word only where the namespace goes.
func TestRefused(t *testing.T) {
	t.Parallel()
	terminating := apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "default", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	deleted := metav1.Now()
	cases := map[string]struct {
		reason    string
		refusal   error
		namespace *corev1.Namespace
		again     bool
	}{
		"Published":   {reason: "there is nothing left to do"},
		"Gone":        {reason: "a namespace that is gone needs nothing", refusal: terminating},
		"Terminating": {reason: "nor does one that goes", refusal: terminating, namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &deleted}}},
		"MadeAgain":   {reason: "the refusal is of another namespace, which had the name before", refusal: terminating, namespace: &corev1.Namespace{}, again: true},
		"Failed":      {reason: "what fails is tried again", refusal: apierrors.NewInternalError(errors.New("broken")), namespace: &corev1.Namespace{}, again: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			if c.namespace != nil {
				c.namespace.Name = "shop"
				client = fake.NewClientset(c.namespace)
			}
			b := publisher{
				name: "default", core: client.CoreV1(),
				ensure: func(context.Context, *publisher, string) error { return c.refusal },
			}
			if again := b.publish(t.Context(), "shop") != nil; again != c.again {
				t.Errorf("%s: tried again: %v, want %v", c.reason, again, c.again)
			}
		})
	}
}
