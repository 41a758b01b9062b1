package quota

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"
	apiquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// StoredBytes is the resource of a quota that limits how much the objects of a
// namespace take in the storage: keys and values, without history. ResourceQuotas
// themselves do not count, because counting changes them.
const StoredBytes corev1.ResourceName = "sailplane.dev/stored-bytes"

// grace is by how much a write may enlarge an object that is being deleted, whatever
// the quota says: who removes a finalizer is noted in the managed fields.
const grace = 1 << 10

// weighed stands for every resource where the published plugin wants one.
func weighed() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "sailplane.dev", Version: "v1", Resource: "stored-bytes"}
}

// uncounted are objects whose bytes do not count.
func uncounted() schema.GroupResource { return corev1.Resource("resourcequotas") }

// growth is by how many bytes a namespace grows, as the object that the plugin evaluates.
type growth struct {
	metav1.PartialObjectMetadata

	bytes int64
}

// stored evaluates growth.
type stored struct{ apiquota.Evaluator }

func storedBytes() stored {
	return stored{generic.NewObjectCountEvaluator(weighed().GroupResource(), nil, "")}
}

// Handles tells that all growth counts.
func (stored) Handles(admission.Attributes) bool { return true }

// Matches tells whether a quota limits bytes.
func (s stored) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, s.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources is the one name.
func (stored) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	if slices.Contains(names, StoredBytes) {
		return []corev1.ResourceName{StoredBytes}
	}
	return nil
}

// Usage is what the growth is.
func (stored) Usage(item runtime.Object) (corev1.ResourceList, error) {
	g, ok := item.(*growth)
	if !ok {
		return nil, fmt.Errorf("a %T is not growth", item)
	}
	return corev1.ResourceList{StoredBytes: *bytesOf(g.bytes)}, nil
}

func bytesOf(n int64) *resource.Quantity { return resource.NewQuantity(n, resource.BinarySI) }

// scale reserves the bytes of objects before they are stored.
type scale struct {
	plugin *plugin
	feed   atomic.Pointer[feed.Feed] // nil until it is complete
	// counter is that of this process, while it counts.
	counter atomic.Pointer[counter]
}

// guard is a controlplane.WriteGuard.
func (s *scale) guard(ctx context.Context, w controlplane.Write) (done func(bool), err error) {
	if w.Namespace == "" || w.Resource == uncounted() || !s.plugin.limitsBytes(w.Namespace) {
		return nil, nil
	}
	var before *feed.Object
	if f := s.feed.Load(); f != nil && w.Replaces != 0 {
		if before, err = f.Replaced(ctx, w.Key, w.Replaces); err != nil {
			return nil, fmt.Errorf("measure %s %q: %w", w.Resource, w.Name, err)
		}
	}
	added := w.Bytes
	if before != nil {
		added -= before.Bytes()
	}
	if added <= 0 {
		return nil, nil // the count finds room when it is written
	}
	info, _ := request.RequestInfoFrom(ctx)
	deletes := info != nil && (info.Verb == "delete" || info.Verb == "deletecollection")
	if deletes || before != nil && before.Deleting && added <= grace {
		return func(kept bool) {
			if kept {
				s.free(w.Namespace, -added)
			}
		}, nil
	}
	if err := s.reserve(ctx, w, added); err != nil {
		return nil, err
	}
	return func(kept bool) {
		if !kept {
			s.free(w.Namespace, added)
		}
	}, nil
}

// reserve asks the plugin.
func (s *scale) reserve(ctx context.Context, w controlplane.Write, added int64) error {
	kind := schema.GroupVersionKind{Group: weighed().Group, Version: weighed().Version, Kind: "StoredBytes"}
	a := admission.NewAttributesRecord(&growth{bytes: added}, nil, kind, w.Namespace, w.Name, weighed(), "",
		admission.Create, &metav1.CreateOptions{}, false, nil)
	err := s.plugin.Validate(ctx, a, nil)
	if _, why, ok := strings.Cut(fmt.Sprint(err), " is forbidden: "); ok && apierrors.IsForbidden(err) {
		return apierrors.NewForbidden(w.Resource, w.Name, errors.New(why)) // of the object, not of its bytes
	}
	return err
}

// free takes back what was reserved. If another server counts, that forgets it when it is settled.
func (s *scale) free(namespace string, n int64) {
	if c := s.counter.Load(); c != nil {
		c.free(namespace, n)
	}
}

// SetExternalKubeInformerFactory implements initializer.WantsExternalKubeInformerFactory.
func (p *plugin) SetExternalKubeInformerFactory(f informers.SharedInformerFactory) {
	p.QuotaAdmission.SetExternalKubeInformerFactory(f)
	p.quotas = f.Core().V1().ResourceQuotas().Lister()
}

// limitsBytes tells whether a quota of a namespace limits bytes.
func (p *plugin) limitsBytes(namespace string) bool {
	all, err := p.quotas.ResourceQuotas(namespace).List(labels.Everything())
	return err != nil || slices.ContainsFunc(all, func(q *corev1.ResourceQuota) bool {
		_, ok := q.Status.Hard[StoredBytes]
		return ok
	})
}
