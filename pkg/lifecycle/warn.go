package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
)

// warn records an event about an object whose owner is in another namespace and
// so counts as gone, as Kubernetes does. Nothing else would say why the object
// was deleted. Without a part that serves events there is none.
func (c *collector) warn(ctx context.Context, s *catalog.Served, it *liveObject, ref metav1.OwnerReference) {
	owner := c.feed.ByUID(feed.UIDOf(ref.UID))
	if owner == nil || owner.Namespace == "" || owner.Namespace == it.Namespace {
		return
	}
	if _, ok := s.Resources[corev1.Resource("events")]; !ok {
		return
	}
	now := metav1.Now()
	_, err := c.events.Events(it.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: it.Namespace, Name: fmt.Sprintf("%s.%x", it.Name, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: it.target.GroupVersion().String(), Kind: it.target.Kind,
			Namespace: it.Namespace, Name: it.Name, UID: it.UID, ResourceVersion: it.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace",
		Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			ref.APIVersion, ref.Kind, it.Namespace, ref.Name, ref.UID, it.Namespace),
		Source:         corev1.EventSource{Component: "garbage-collector-controller"},
		FirstTimestamp: now.Rfc3339Copy(), LastTimestamp: now.Rfc3339Copy(), Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		klog.FromContext(ctx).V(2).Info("No event was recorded", "namespace", it.Namespace, "name", it.Name, "cause", err)
	}
}
