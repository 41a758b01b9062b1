package terminator

import (
	"context"
	"errors"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
)

// requestsEnd is how long after a namespace was removed a request that was admitted
// before may still write into it: longer than API servers let a request take, which
// is a minute.
const requestsEnd = 2 * time.Minute

// removedLately tells whether a namespace was removed recently.
func (t *terminator) removedLately(namespace string) bool {
	_, found := t.removed.Get(namespace)
	return found
}

// late returns objects in a namespace that was removed recently. Their requests
// were admitted while the namespace existed, and were then delayed by a webhook or
// a busy machine: nobody else would delete them. Kubernetes waits 5 s before it
// empties a namespace, so that there are few of them.
func (t *terminator) late(namespace string) []*feed.Object {
	if !t.removedLately(namespace) || len(t.feed.Counts(namespace)) == 0 {
		return nil
	}
	var all []*feed.Object
	for o := range t.feed.All() {
		if o.Namespace == namespace && !o.Deleting {
			all = append(all, o)
		}
	}
	return all
}

// sweep deletes late objects only as they were without a namespace, so that it
// takes none for an object in a new namespace of the same name.
func (t *terminator) sweep(ctx context.Context, objects []*feed.Object) (done bool, err error) {
	if len(objects) == 0 {
		return true, nil
	}
	s, err := t.catalog.Now(ctx)
	if err != nil {
		return false, err
	}
	klog.FromContext(ctx).Info("Deleting objects that were written to a namespace after its removal",
		"namespace", objects[0].Namespace, "objects", len(objects))
	var errs []error
	for _, o := range objects {
		res, ok := s.Resources[o.Type.Resource]
		if !ok {
			res = catalog.Target{GroupVersionResource: o.Type.Resource.WithVersion(o.Type.Kind.Version), Namespaced: true}
		}
		version := strconv.FormatInt(o.Revision, 10)
		err := res.In(t.objects, o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{ResourceVersion: &version},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err) // after a later write the feed has its revision
		}
	}
	return len(errs) == 0, errors.Join(errs...)
}
