package certificates

import (
	"context"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// requestStore sets what is special about the store.
func requestStore(s *registry.Store) {
	s.CreateStrategy = create[csr]{s.CreateStrategy, validateSpec}
	s.ResetFieldsStrategy = resetFields{fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status")}
}

// create validates what is new, once and for all.
type create[T any] struct {
	rest.RESTCreateStrategy
	validate func(*T) field.ErrorList
}

func (c create[T]) Validate(ctx context.Context, obj runtime.Object) field.ErrorList {
	r, ok := any(obj).(*T)
	if !ok {
		return wrongType[T](obj)
	}
	return append(c.RESTCreateStrategy.Validate(ctx, obj), c.validate(r)...)
}

func wrongType[T any](obj runtime.Object) field.ErrorList {
	return field.ErrorList{field.InternalError(nil, fmt.Errorf("got a %T, not a %T", obj, new(T)))}
}

// resetFields are the fields that a write ignores, so that server-side apply
// does not own them.
type resetFields []fieldpath.Path

// GetResetFields implements rest.ResetFieldsStrategy.
func (r resetFields) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return map[fieldpath.APIVersion]*fieldpath.Set{
		fieldpath.APIVersion(certificatesv1.SchemeGroupVersion.String()): fieldpath.NewSet(r...),
	}
}

// update is the strategy of a sub-resource: it puts back what the sub-resource
// does not change, and validates the rest.
type update struct {
	rest.RESTUpdateStrategy
	keep     func(r, old *csr)
	validate func(r, old *csr) field.ErrorList
}

func (update) AllowCreateOnUpdate(context.Context) bool { return false }

func (u update) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	r, ok := obj.(*csr)
	if was, both := old.(*csr); ok && both {
		r.Spec = was.Spec
		u.keep(r, was)
	}
}

func (u update) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	r, ok := obj.(*csr)
	if !ok {
		return wrongType[csr](obj)
	}
	was, ok := old.(*csr)
	if !ok {
		return wrongType[csr](old)
	}
	return append(validateConditions(r, was), u.validate(r, was)...)
}

func (update) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string { return nil }

// newApproval is /approval, which changes conditions and never the certificate.
func newApproval(s *registry.Store) rest.Storage {
	return newSubresource(s, update{
		RESTUpdateStrategy: s.UpdateStrategy,
		keep: func(r, old *csr) {
			r.Status.Certificate = old.Status.Certificate
			stamp(r, old, metav1.Now())
		},
		validate: func(_, _ *csr) field.ErrorList { return nil },
	}, resetFields{fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "certificate")})
}

// newStatus is /status, which changes the certificate, and the conditions that
// do not say whether the request is approved.
func newStatus(s *registry.Store) rest.Storage {
	return newSubresource(s, update{
		RESTUpdateStrategy: s.UpdateStrategy,
		keep: func(r, old *csr) {
			keepConditions(r, old, certificatesv1.CertificateApproved)
			keepConditions(r, old, certificatesv1.CertificateDenied)
			stamp(r, old, metav1.Now())
		},
		validate: func(r, old *csr) field.ErrorList {
			return append(validateUndecided(r, old), validateCertificate(r, old)...)
		},
	}, resetFields{fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status", "conditions")})
}

// keepConditions puts back the condition of a type when it is still there; when
// it came or went, validation says so.
func keepConditions(r, old *csr, t certificatesv1.RequestConditionType) {
	before := conditions(old, t)
	if len(before) != len(conditions(r, t)) {
		return
	}
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == t {
			r.Status.Conditions[i], before = before[0], before[1:]
		}
	}
}

// stamp sets the times that the client left out: when a condition was updated
// is now, and when it became what it is may be long ago.
func stamp(r, old *csr, now metav1.Time) {
	for i := range r.Status.Conditions {
		c := &r.Status.Conditions[i]
		if c.LastUpdateTime.IsZero() {
			c.LastUpdateTime = now
		}
		if !c.LastTransitionTime.IsZero() {
			continue
		}
		c.LastTransitionTime = now
		for _, before := range conditions(old, c.Type) {
			if before.Status == c.Status && !before.LastTransitionTime.IsZero() {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
	}
}

// subresource serves a sub-resource from a copy of the store with its own
// strategy.
type subresource struct {
	rest.TableConvertor
	store *registry.Store
}

var (
	_ rest.Patcher             = subresource{}
	_ rest.ResetFieldsStrategy = subresource{}
)

func newSubresource(s *registry.Store, u rest.RESTUpdateStrategy, reset resetFields) rest.Storage {
	c := *s
	c.UpdateStrategy, c.ResetFieldsStrategy = u, reset
	return subresource{TableConvertor: s, store: &c}
}

// New returns an empty object.
func (s subresource) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the resource destroys what it shares.
func (subresource) Destroy() {}

// Get returns the object. Patch needs it.
func (s subresource) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return s.store.Get(ctx, name, options)
}

// Update changes an object that exists.
func (s subresource) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo,
	createValidation rest.ValidateObjectFunc, updateValidation rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	return s.store.Update(ctx, name, info, createValidation, updateValidation, false, options)
}

// GetResetFields are the fields that the sub-resource ignores.
func (s subresource) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return s.store.GetResetFields()
}
