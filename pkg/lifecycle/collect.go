package lifecycle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
)

// namespacedOwnerError is why an object is left alone for good.
type namespacedOwnerError struct{}

func (namespacedOwnerError) Error() string {
	return "a cluster-scoped object cannot have a namespaced owner"
}

// liveObject is an object as the API has it now.
type liveObject struct {
	*metav1.PartialObjectMetadata
	id     feed.UID
	target catalog.Target
	client metadata.ResourceInterface
}

// collect does what an object needs now, if anything.
func (c *collector) collect(ctx context.Context, id feed.UID) error {
	known := c.feed.ByUID(id)
	if known == nil || known.Deleting && known.Foreground && !known.Orphan && c.feed.Blocked(id) && !c.circular(known) {
		return nil // checked again when a dependent goes
	}
	s, err := c.catalog.Now(ctx)
	if err != nil {
		return err
	}
	if c.abandoned(known) {
		if done, err := c.drop(ctx, s, known); done {
			return err
		}
	}
	it, err := c.read(ctx, s, known)
	if err != nil || it == nil {
		return err
	}
	if it.DeletionTimestamp != nil {
		return c.finish(ctx, it)
	}
	return c.judge(ctx, s, it)
}

// abandoned tells whether to delete an object, as the feed has it, in the
// background: the feed saw the deletion of all its owners. Owners of a
// cluster-scoped object need a closer look.
func (c *collector) abandoned(known *feed.Object) bool {
	return known.Namespace != "" && known.Owned() && !known.Deleting && !known.Foreground && !known.Orphan &&
		!slices.ContainsFunc(known.Owners(), func(o feed.Owner) bool { return !c.isGone(o.UID) })
}

// drop deletes an object without reading it, if it is as the feed has it.
func (c *collector) drop(ctx context.Context, s *catalog.Served, known *feed.Object) (done bool, err error) {
	t, ok := s.Resources[known.Type.Resource]
	if !ok {
		return false, nil
	}
	policy, version := metav1.DeletePropagationBackground, strconv.FormatInt(known.Revision, 10)
	err = t.In(c.objects, known.Namespace).Delete(ctx, known.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{ResourceVersion: &version},
	})
	switch {
	case apierrors.IsConflict(err):
		return false, nil
	case apierrors.IsNotFound(err):
		return true, nil
	}
	return true, err
}

// read reads an object; nil when it is gone.
func (c *collector) read(ctx context.Context, s *catalog.Served, known *feed.Object) (*liveObject, error) {
	t, ok := s.Resources[known.Type.Resource]
	if !ok {
		return nil, fmt.Errorf("no server serves %s", known.Type.Resource)
	}
	it := &liveObject{id: known.UID, target: t, client: t.In(c.objects, known.Namespace)}
	var err error
	it.PartialObjectMetadata, err = it.client.Get(ctx, known.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && feed.UIDOf(it.UID) != known.UID:
		return nil, nil //nolint:nilnil // nothing to do is no error
	case err != nil:
		return nil, err
	}
	return it, nil
}

// finish does what the finalizers of an object that is being deleted ask for.
func (c *collector) finish(ctx context.Context, it *liveObject) error {
	switch {
	case slices.Contains(it.Finalizers, metav1.FinalizerOrphanDependents):
		if err := c.dependentsKnown(ctx); err != nil {
			return err
		}
		if err := c.orphan(ctx, it); err != nil {
			return err
		}
		return removeFinalizer(ctx, it, metav1.FinalizerOrphanDependents)
	case slices.Contains(it.Finalizers, metav1.FinalizerDeleteDependents):
		return c.foreground(ctx, it)
	}
	return nil
}

// dependentsKnown waits until the feed has every dependent. Objects that cannot
// be decrypted may have any owner: owners stay until they can.
func (c *collector) dependentsKnown(ctx context.Context) error {
	if err := c.feed.CatchUp(ctx); err != nil {
		return err
	}
	return c.feed.Unreadable()
}

// orphan removes the owner from all its dependents.
func (c *collector) orphan(ctx context.Context, it *liveObject) error {
	s, err := c.catalog.Now(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range c.feed.Dependents(it.id) {
		dependent, err := c.read(ctx, s, d)
		if err == nil && dependent != nil {
			err = dependent.change(ctx, disown(it.UID))
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// foreground lets an object go when nothing that blocks it is left. In a circle
// of objects that wait for each other it lets the others go before it.
func (c *collector) foreground(ctx context.Context, it *liveObject) error {
	if err := c.dependentsKnown(ctx); err != nil {
		return err
	}
	if !c.feed.Blocked(it.id) {
		return removeFinalizer(ctx, it, metav1.FinalizerDeleteDependents)
	}
	if known := c.feed.ByUID(it.id); known != nil && c.circular(known) {
		return unblock(ctx, it)
	}
	return nil
}

// circular tells whether an object waits for itself: each of a circle of objects
// is deleted in the foreground and blocked by the next. The write that closes a
// circle is to one of its objects, which is then checked.
func (c *collector) circular(o *feed.Object) bool {
	if !o.Deleting || !o.Foreground {
		return false
	}
	seen := map[feed.UID]bool{}
	for above := []*feed.Object{o}; len(above) > 0; {
		last := above[len(above)-1]
		above = above[:len(above)-1]
		for _, ref := range last.Owners() {
			if !ref.Blocks || !c.waits(ref.UID) {
				continue
			}
			if ref.UID == o.UID {
				return true
			}
			if !seen[ref.UID] {
				seen[ref.UID] = true
				if owner := c.feed.ByUID(ref.UID); owner != nil {
					above = append(above, owner)
				}
			}
		}
	}
	return false
}

// judge deletes an object when no owner is left to keep it, and else removes the
// owners that are gone or wait for it to go.
func (c *collector) judge(ctx context.Context, s *catalog.Served, it *liveObject) error {
	if len(it.OwnerReferences) == 0 {
		return nil
	}
	solid := 0
	var dangling, waiting []types.UID
	for _, ref := range it.OwnerReferences {
		fate, err := c.owner(ctx, s, it, ref)
		if errors.Is(err, namespacedOwnerError{}) {
			klog.FromContext(ctx).Info("An object will never be collected",
				"resource", it.target.GroupResource(), "name", it.Name, "cause", err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("owner %s %q: %w", ref.Kind, ref.Name, err)
		}
		switch {
		case fate == nil:
			c.warn(ctx, s, it, ref)
			dangling = append(dangling, ref.UID)
		case fate.DeletionTimestamp != nil && slices.Contains(fate.Finalizers, metav1.FinalizerDeleteDependents):
			waiting = append(waiting, ref.UID)
		default:
			solid++
		}
	}
	switch {
	case solid > 0 && len(dangling)+len(waiting) == 0:
		return nil
	case solid > 0:
		// Once: a change meanwhile may have left it no owner but these.
		return it.write(ctx, disown(append(dangling, waiting...)...))
	}
	policy := metav1.DeletePropagationBackground
	dependents := c.feed.Dependents(it.id)
	switch {
	case slices.Contains(it.Finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	case slices.Contains(it.Finalizers, metav1.FinalizerDeleteDependents), len(waiting) > 0 && len(dependents) > 0:
		policy = metav1.DeletePropagationForeground
	}
	return it.delete(ctx, policy)
}

// owner returns the owner of a reference, or nil when it is gone: no object of
// that name, in the namespace of the dependent, has its UID.
func (c *collector) owner(
	ctx context.Context, s *catalog.Served, it *liveObject, ref metav1.OwnerReference,
) (*metav1.PartialObjectMetadata, error) {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	t, ok := s.Kinds[gvk]
	switch {
	case ok && t.Namespaced && !it.target.Namespaced:
		return nil, namespacedOwnerError{}
	case c.isGone(feed.UIDOf(ref.UID)):
		return nil, nil //nolint:nilnil // gone is no error
	case !ok:
		return nil, fmt.Errorf("no server serves %s: the object is kept", gvk)
	}
	if known := c.feed.ByUID(feed.UIDOf(ref.UID)); known != nil && known.Type.Resource == t.GroupResource() &&
		known.Name == ref.Name && (!t.Namespaced || known.Namespace == it.Namespace) && !known.Deleting {
		return &metav1.PartialObjectMetadata{}, nil
	}
	owner, err := t.In(c.objects, it.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && owner.UID != ref.UID:
		return nil, nil //nolint:nilnil // gone is no error
	case err != nil:
		return nil, err
	}
	return owner, nil
}

// delete deletes the object as it was read.
func (it *liveObject) delete(ctx context.Context, policy metav1.DeletionPropagation) error {
	err := it.client.Delete(ctx, it.Name, metav1.DeleteOptions{
		PropagationPolicy: &policy,
		Preconditions:     &metav1.Preconditions{UID: &it.UID, ResourceVersion: &it.ResourceVersion},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// disown removes owners from an object.
func disown(owners ...types.UID) func(*metav1.PartialObjectMetadata) bool {
	return func(m *metav1.PartialObjectMetadata) bool {
		kept := slices.DeleteFunc(slices.Clone(m.OwnerReferences), func(r metav1.OwnerReference) bool {
			return slices.Contains(owners, r.UID)
		})
		changed := len(kept) != len(m.OwnerReferences)
		m.OwnerReferences = kept
		return changed
	}
}

// unblock lets the owners of an object go before it.
func unblock(ctx context.Context, it *liveObject) error {
	return it.change(ctx, func(m *metav1.PartialObjectMetadata) bool {
		changed := false
		for i := range m.OwnerReferences {
			if blocks(m.OwnerReferences[i]) {
				m.OwnerReferences[i].BlockOwnerDeletion, changed = new(false), true
			}
		}
		return changed
	})
}

func removeFinalizer(ctx context.Context, it *liveObject, finalizer string) error {
	return it.change(ctx, func(m *metav1.PartialObjectMetadata) bool {
		i := slices.Index(m.Finalizers, finalizer)
		if i < 0 {
			return false
		}
		m.Finalizers = slices.Delete(slices.Clone(m.Finalizers), i, i+1)
		return true
	})
}

// change writes what f changed, and on a conflict begins again with the stored object.
func (it *liveObject) change(ctx context.Context, f func(*metav1.PartialObjectMetadata) bool) error {
	err := it.write(ctx, f)
	if !apierrors.IsConflict(err) {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		m, err := it.client.Get(ctx, it.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && m.UID != it.UID {
			return nil
		}
		if err != nil {
			return err
		}
		it.PartialObjectMetadata = m
		return it.write(ctx, f)
	})
}

// write writes owner references and finalizers that f changed, unless the object
// has changed since it was read.
func (it *liveObject) write(ctx context.Context, f func(*metav1.PartialObjectMetadata) bool) error {
	if !f(it.PartialObjectMetadata) {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": it.UID, "resourceVersion": it.ResourceVersion,
		"ownerReferences": it.OwnerReferences, "finalizers": it.Finalizers,
	}})
	if err != nil {
		return err
	}
	m, err := it.client.Patch(ctx, it.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	it.PartialObjectMetadata = m
	return nil
}
