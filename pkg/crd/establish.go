package crd

import (
	"context"
	"errors"
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// A CRD that is Established is usable: discovery and OpenAPI have its resource, and
// every verb is served. Upstream writes the condition first, and serves the
// resource later. Here the server treats a CRD as established in memory as soon
// as its names are accepted (see [assume]); once discovery lists it,
// [groups.establish] writes the condition. When a CRD is deleted, the condition
// goes first, and the CRD once discovery no longer lists it (see
// [establishment]).

// creationDelay is how long upstream delays creates of custom resources while
// their CRD's Established condition is younger than this, so that other replicas
// see the CRD too.
// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.37.2/pkg/apiserver/customresource_handler.go#L385
const creationDelay = 2 * time.Second

// assumeEstablished marks a CRD in memory as established when only the condition is missing.
// The time of the condition is zero, so that creates are not delayed.
func assumeEstablished(crd *apiextensionsv1.CustomResourceDefinition) {
	c := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	switch {
	case c == nil:
	case c.Status == apiextensionsv1.ConditionTrue:
		c.LastTransitionTime = metav1.NewTime(c.LastTransitionTime.Add(-creationDelay))
	case apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) && validBundle(crd):
		c.Status, c.LastTransitionTime = apiextensionsv1.ConditionTrue, metav1.Time{}
	}
}

// assumed tells whether a CRD is established in memory only.
func assumed(crd *apiextensionsv1.CustomResourceDefinition) bool {
	c := apihelpers.FindCRDCondition(crd, apiextensionsv1.Established)
	return c != nil && c.Status == apiextensionsv1.ConditionTrue && c.LastTransitionTime.IsZero()
}

// established tells whether a CRD is established in the storage.
func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) && !assumed(crd)
}

// validBundle tells whether the authorities of a conversion webhook are valid.
// If they are not, upstream says so in the condition.
func validBundle(crd *apiextensionsv1.CustomResourceDefinition) bool {
	c := crd.Spec.Conversion
	return c == nil || c.Webhook == nil || c.Webhook.ClientConfig == nil ||
		len(webhook.ValidateCABundle(field.NewPath(""), c.Webhook.ClientConfig.CABundle)) == 0
}

// establish writes the condition of CRDs that became usable, until the context ends.
func (g *groups) establish(ctx context.Context, p *controlplane.Plane) error {
	written := map[types.UID]string{} // resource versions of CRDs, until the informer has others
	for {
		more, listed := g.changed.Next(), p.DiscoveryChanged()
		var retry <-chan time.Time
		waiting := map[types.UID]string{}
		for _, crd := range g.assumed() {
			if written[crd.UID] != crd.ResourceVersion {
				if !p.Discovers(served(crd)...) {
					continue
				}
				if err := g.writeEstablished(ctx, crd); err != nil && ctx.Err() == nil {
					klog.FromContext(ctx).Error(err, "Failed to mark a CRD as established", "name", crd.Name, "retryAfter", time.Second)
					retry = time.After(time.Second)
					continue
				}
			}
			waiting[crd.UID] = crd.ResourceVersion
		}
		written = waiting
		select {
		case <-more:
		case <-listed:
		case <-retry:
		case <-ctx.Done():
			return nil
		}
	}
}

// assumed returns the CRDs that are established in memory only.
func (g *groups) assumed() []*apiextensionsv1.CustomResourceDefinition {
	all, err := g.lister.List(labels.Everything())
	if err != nil {
		return nil // a lister over a synced informer does not fail
	}
	return slices.DeleteFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return !assumed(crd) })
}

// errChanged is why a condition is not written.
var errChanged = errors.New("the CRD has changed")

// writeEstablished writes the condition, unless the CRD has changed: then the
// informer reports it again. It goes to the storage without a request: of a large CRD
// that would be encoded, decoded, copied and validated, for one condition.
func (g *groups) writeEstablished(ctx context.Context, seen *apiextensionsv1.CustomResourceDefinition) error {
	key, err := g.stored.key(seen)
	if err != nil {
		return err
	}
	err = g.stored.GuaranteedUpdate(ctx, key, &apiextensions.CustomResourceDefinition{}, false, nil,
		func(input runtime.Object, _ storage.ResponseMeta) (runtime.Object, *uint64, error) {
			crd, ok := input.(*apiextensions.CustomResourceDefinition)
			if !ok || crd.UID != seen.UID || crd.ResourceVersion != seen.ResourceVersion {
				return nil, nil, errChanged
			}
			apiextensions.SetCRDCondition(crd, apiextensions.CustomResourceDefinitionCondition{
				Type: apiextensions.Established, Status: apiextensions.ConditionTrue,
				Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
			})
			return crd, nil, nil
		}, nil)
	if storage.IsNotFound(err) || storage.IsConflict(err) || errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// establishment keeps the condition right in writes of a CRD's status.
type establishment struct{ groups *groups }

// Handles implements admission.Interface.
func (establishment) Handles(op admission.Operation) bool { return op == admission.Update }

// Admit implements admission.MutationInterface.
func (e establishment) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiextensions.Resource("customresourcedefinitions") || a.GetSubresource() != "status" {
		return nil
	}
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	old, okOld := a.GetOldObject().(*apiextensions.CustomResourceDefinition)
	if !ok || !okOld {
		return nil
	}
	keepEstablished(crd, old)
	const finalizer = apiextensions.CustomResourceCleanupFinalizer
	if old.DeletionTimestamp == nil || !slices.Contains(old.Finalizers, finalizer) || slices.Contains(crd.Finalizers, finalizer) {
		return nil
	}
	// The objects of the CRD are gone, and this update would remove the CRD.
	if apiextensions.IsCRDConditionTrue(old, apiextensions.Established) {
		crd.Finalizers = old.Finalizers
		gone := apiextensions.CustomResourceDefinitionCondition{
			Status: apiextensions.ConditionFalse, Reason: "Terminating", Message: "the resource is no longer served",
		}
		gone.Type = apiextensions.Established
		apiextensions.SetCRDCondition(crd, gone)
		gone.Type = apiextensions.NamesAccepted // without which it is served, too
		apiextensions.SetCRDCondition(crd, gone)
		return nil
	}
	return e.groups.awaitUnlisted(ctx, old)
}

// unlistedTimeout bounds how long a CRD stays because discovery still lists it.
const unlistedTimeout = 5 * time.Second

// awaitUnlisted returns when discovery no longer lists a CRD's resources.
func (g *groups) awaitUnlisted(ctx context.Context, crd *apiextensions.CustomResourceDefinition) error {
	var resources []schema.GroupVersionResource
	for _, v := range crd.Spec.Versions {
		resources = append(resources, schema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: crd.Spec.Names.Plural})
	}
	within, cancel := context.WithTimeout(ctx, unlistedTimeout)
	defer cancel()
	if err := g.plane.AwaitUnlisted(within, resources); err != nil {
		klog.FromContext(ctx).Error(err, "Deleting a CRD although discovery still lists its resources", "name", crd.Name)
	}
	return ctx.Err()
}

// keepEstablished keeps the assumed condition out of what upstream's controllers
// write: they write CRDs from memory. A deleted CRD keeps it: it may have
// objects, which upstream deletes only if the CRD was established.
func keepEstablished(crd, old *apiextensions.CustomResourceDefinition) {
	now := apiextensions.FindCRDCondition(crd, apiextensions.Established)
	before := apiextensions.FindCRDCondition(old, apiextensions.Established)
	switch {
	case now == nil || before == nil:
	case now.Status == before.Status:
		now.LastTransitionTime = before.LastTransitionTime
	case !now.LastTransitionTime.IsZero():
	case crd.DeletionTimestamp != nil:
		now.LastTransitionTime = metav1.Now()
	default:
		*now = *before
	}
}
