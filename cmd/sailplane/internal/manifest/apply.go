package manifest

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// manager is the name under which an import writes fields.
const manager = "sailplane-import"

// subject is an object to apply.
type subject struct {
	resource served.Resource
	client   dynamic.ResourceInterface
	// wanted is the object, without its status, which is kept apart: nil if it is not
	// to be written.
	wanted *unstructured.Unstructured
	status any
}

// entry applies an object and says what became of it.
func (i *Import) entry(ctx context.Context, e *entry) result {
	u, err := e.load()
	if err != nil {
		return failure(err)
	}
	s, early, err := i.subject(u)
	if err != nil {
		return i.unlessDone(ctx, err)
	}
	if early.outcome != unfinished {
		return early
	}
	var r result
	// Somebody else may write to the object between a read and a write.
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		r, err = i.apply(ctx, s)
		return err
	})
	if err == nil && s.resource.Group == crdGroup && !i.DryRun && r.outcome != failed {
		err = i.establish(ctx, s)
	}
	if err != nil {
		return i.unlessDone(ctx, err)
	}
	if i.DryRun {
		i.note(u, r.outcome)
	}
	return r
}

// unlessDone is a failure, but for errors that say that the import was interrupted.
func (i *Import) unlessDone(ctx context.Context, err error) result {
	if ctx.Err() != nil {
		return result{}
	}
	return failure(err)
}

// subject finds out how to apply an object, or the early result of one that cannot be applied.
func (i *Import) subject(u *unstructured.Unstructured) (*subject, result, error) {
	gvk := u.GroupVersionKind()
	r, ok, err := i.Catalog.Kind(gvk)
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err != nil:
		return nil, result{}, err
	case !ok && i.pendingKinds[gvk.GroupKind()]:
		return nil, result{outcome: unchecked, detail: "its definition does not exist yet"}, nil
	case !ok:
		return nil, result{}, fmt.Errorf("the server has no kind %s in %s: is its definition, or the server behind it, missing?",
			gvk.Kind, gvk.GroupVersion())
	case r.Namespaced && u.GetNamespace() == "":
		return nil, result{}, fmt.Errorf("metadata.namespace is missing: %s are in namespaces", r.Name())
	case !r.Namespaced && u.GetNamespace() != "":
		return nil, result{}, fmt.Errorf("metadata.namespace is %q, but %s are in no namespace", u.GetNamespace(), r.Name())
	case i.pendingNamespaces[u.GetNamespace()]:
		return nil, result{outcome: unchecked, detail: "its namespace does not exist yet"}, nil
	}
	s := &subject{resource: r, client: i.Objects.Resource(r.GroupVersionResource)}
	if r.Namespaced {
		s.client = i.Objects.Resource(r.GroupVersionResource).Namespace(u.GetNamespace())
	}
	if i.Form.keepsStatus(r) {
		s.status = u.Object["status"]
	}
	s.wanted = u.DeepCopy()
	Form{ManagedFields: i.Form.ManagedFields}.clean(s.wanted, r)
	return s, result{}, nil
}

// note remembers what a dry run would have made.
func (i *Import) note(u *unstructured.Unstructured, o outcome) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch kind := u.GroupVersionKind().GroupKind(); {
	case kind == schema.GroupKind{Kind: "Namespace"} && o == created:
		i.pendingNamespaces[u.GetName()] = true
	case kind == schema.GroupKind{Group: crdGroup, Kind: crdKind} && (o == created || o == replaced):
		group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "names", "kind")
		i.pendingKinds[schema.GroupKind{Group: group, Kind: kind}] = true
	}
}

// apply creates the object, or deals with the one that is there. A conflict is
// an error to retry after.
func (i *Import) apply(ctx context.Context, s *subject) (result, error) {
	is, err := s.client.Get(ctx, s.wanted.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return i.create(ctx, s)
	}
	if err != nil {
		return result{}, err
	}
	if is.GetDeletionTimestamp() != nil {
		return result{}, errors.New("there is one that is being deleted: run the import again when it is gone")
	}
	if i.OnConflict == Replace && !i.DryRun {
		return i.replace(ctx, s, is)
	}
	paths, err := i.compare(ctx, s, is)
	if err != nil {
		return result{}, err
	}
	paths = append(paths, s.statusDiffers(is)...)
	switch {
	case len(paths) == 0:
		return result{outcome: unchanged}, nil
	case i.OnConflict == Skip:
		return result{outcome: skipped, paths: paths}, nil
	case i.OnConflict == Fail:
		return result{outcome: differs, paths: paths}, nil
	}
	return result{outcome: replaced}, nil
}

// replace updates the object where it differs. The server knows best whether it does.
func (i *Import) replace(ctx context.Context, s *subject, is *unstructured.Unstructured) (result, error) {
	before := is.GetResourceVersion()
	if len(s.seems(is)) > 0 {
		var err error
		if is, err = s.client.Update(ctx, s.merged(is), i.update()); err != nil {
			return result{}, err
		}
	}
	is, err := i.writeStatus(ctx, s, is)
	if err != nil {
		return result{}, err
	}
	if is.GetResourceVersion() == before {
		return result{outcome: unchanged}, nil
	}
	return result{outcome: replaced}, nil
}

// create makes the object. If another request was faster, that is a conflict.
func (i *Import) create(ctx context.Context, s *subject) (result, error) {
	o := metav1.CreateOptions{FieldManager: manager, FieldValidation: metav1.FieldValidationStrict}
	if i.DryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	is, err := s.client.Create(ctx, s.wanted, o)
	if apierrors.IsAlreadyExists(err) {
		return result{}, apierrors.NewConflict(s.resource.GroupResource(), s.wanted.GetName(), err)
	}
	if err != nil {
		return result{}, err
	}
	if !i.DryRun { // one that does not exist has no status
		if _, err := i.writeStatus(ctx, s, is); err != nil {
			return result{}, fmt.Errorf("created, but for its status: %w", err)
		}
	}
	return result{outcome: created}, nil
}

// compare returns where the object would change. What seems to differ is asked
// for: the server fills in defaults, and sets some fields by itself.
func (i *Import) compare(ctx context.Context, s *subject, is *unstructured.Unstructured) ([]string, error) {
	seems := s.seems(is)
	if len(seems) == 0 {
		return nil, nil
	}
	o := i.update()
	o.DryRun = []string{metav1.DryRunAll}
	would, err := s.client.Update(ctx, s.merged(is), o)
	switch {
	case err == nil:
		return differences("", s.plain(is), s.plain(would)), nil
	case i.OnConflict == Replace || apierrors.IsConflict(err):
		return nil, err
	}
	return seems, nil // it cannot become like that
}

// seems returns where the object that is there is not as in the document.
func (s *subject) seems(is *unstructured.Unstructured) []string {
	return differences("", s.plain(is), s.plain(s.wanted))
}

// plain is the content of an object that is compared.
func (s *subject) plain(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	Form{}.clean(c, s.resource)
	return c.Object
}

// merged is the object that is there with the content of the document. It keeps what has
// UIDs of this server, such as its owners, and the update fails if somebody else writes to it meanwhile.
func (s *subject) merged(is *unstructured.Unstructured) *unstructured.Unstructured {
	u := s.wanted.DeepCopy()
	u.SetResourceVersion(is.GetResourceVersion())
	u.SetUID(is.GetUID())
	u.SetOwnerReferences(is.GetOwnerReferences())
	restore(u, is, s.resource)
	return u
}

// statusDiffers returns where the status differs, if it is to be written.
func (s *subject) statusDiffers(is *unstructured.Unstructured) []string {
	if s.status == nil {
		return nil
	}
	return differences("status", is.Object["status"], s.status)
}

// writeStatus writes the status of an object, if there is one to write, and returns
// the object as it then is.
func (i *Import) writeStatus(ctx context.Context, s *subject, is *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if len(s.statusDiffers(is)) == 0 {
		return is, nil
	}
	u := is.DeepCopy()
	u.Object["status"] = s.status
	return s.client.UpdateStatus(ctx, u, i.update())
}

func (i *Import) update() metav1.UpdateOptions {
	o := metav1.UpdateOptions{FieldManager: manager, FieldValidation: metav1.FieldValidationStrict}
	if i.DryRun {
		o.DryRun = []string{metav1.DryRunAll}
	}
	return o
}
