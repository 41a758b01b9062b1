package crd

import (
	"context"
	"hash/maphash"
	"sync"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// naming has one CRD of a group at a time take names. Upstream has a controller
// accept them, one CRD after another, with a write of its own; of a large CRD each write
// costs as much as its creation. Here the names of a new CRD are accepted as it is
// created, where no other CRD of its group is about to take or to give up any. What is
// left, such as every conflict, is left to the controller.
type naming struct {
	seed   maphash.Seed
	groups [64]*semaphore.Weighted // several groups share one
}

func newNaming() *naming {
	n := &naming{seed: maphash.MakeSeed()}
	for i := range n.groups {
		n.groups[i] = semaphore.NewWeighted(1)
	}
	return n
}

// lock returns when no other write takes names in the group, or why the context ended.
// unlock may be called again.
func (n *naming) lock(ctx context.Context, group string) (unlock func(), err error) {
	one := n.groups[maphash.String(n.seed, group)%uint64(len(n.groups))]
	if err := one.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { one.Release(1) }), nil
}

// accept accepts the names of a new CRD, if that is all that happens to names in its
// group. The caller has locked it, until the informer has the CRD.
func (g *groups) accept(crd *apiextensions.CustomResourceDefinition) {
	wanted := crd.Spec.Names
	resources, kinds := sets.New(wanted.ShortNames...).Insert(wanted.Plural, wanted.Singular), sets.New(wanted.Kind, wanted.ListKind)
	all, err := g.lister.List(labels.Everything())
	if err != nil {
		return // a lister over a synced informer does not fail
	}
	for _, other := range all {
		if other.Spec.Group != crd.Spec.Group || other.Name == crd.Name {
			continue
		}
		has := other.Status.AcceptedNames
		if resources.HasAny(has.ShortNames...) || resources.HasAny(has.Plural, has.Singular) || kinds.HasAny(has.Kind, has.ListKind) ||
			!equality.Semantic.DeepEqual(other.Spec.Names, has) { // the controller will have it take names
			return
		}
	}
	now := metav1.Now()
	crd.Status.AcceptedNames = *wanted.DeepCopy()
	crd.Status.Conditions = append(crd.Status.Conditions,
		apiextensions.CustomResourceDefinitionCondition{
			Type: apiextensions.NamesAccepted, Status: apiextensions.ConditionTrue, LastTransitionTime: now,
			Reason: "NoConflicts", Message: "no conflicts found",
		},
		apiextensions.CustomResourceDefinitionCondition{
			Type: apiextensions.Established, Status: apiextensions.ConditionFalse, LastTransitionTime: now,
			Reason: "Installing", Message: "the initial names have been accepted",
		})
}

// hasSeen tells whether the informer has a CRD as it was written, or later.
func (g *groups) hasSeen(written *apiextensions.CustomResourceDefinition) bool {
	crd, err := g.lister.Get(written.Name)
	return err == nil && crd.UID == written.UID && crd.Generation >= written.Generation
}
