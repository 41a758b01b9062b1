package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// OwnerPermissions is the part that requires of a change of owner references the
// permissions it amounts to: to delete the object, since the collector may delete
// it for the user; and for blockOwnerDeletion to update the owner's finalizers,
// since the owner's deletion waits. It is the admission plugin
// OwnerReferencesPermissionEnforcement:
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#ownerreferencespermissionenforcement
type OwnerPermissions struct{}

// Install adds the admission plugin.
func (OwnerPermissions) Install(p *controlplane.Plan) error {
	p.Admit("OwnerReferencesPermissionEnforcement", &ownerPermissions{Handler: admission.NewHandler(admission.Create, admission.Update)})
	return nil
}

type ownerPermissions struct {
	*admission.Handler
	authorizer authorizer.Authorizer
	mapper     meta.RESTMapper
}

var (
	_ admission.ValidationInterface     = &ownerPermissions{}
	_ admission.InitializationValidator = &ownerPermissions{}
	_ initializer.WantsAuthorizer       = &ownerPermissions{}
	_ initializer.WantsRESTMapper       = &ownerPermissions{}
)

// SetAuthorizer implements initializer.WantsAuthorizer.
func (o *ownerPermissions) SetAuthorizer(a authorizer.Authorizer) { o.authorizer = a }

// SetRESTMapper implements initializer.WantsRESTMapper.
func (o *ownerPermissions) SetRESTMapper(m meta.RESTMapper) { o.mapper = m }

// ValidateInitialization implements admission.InitializationValidator.
func (o *ownerPermissions) ValidateInitialization() error {
	if o.authorizer == nil || o.mapper == nil {
		return errors.New("it needs an authorizer and a REST mapper")
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (o *ownerPermissions) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() == (schema.GroupResource{Resource: "pods"}) && a.GetSubresource() == "status" {
		return nil // kubelets write it, and it keeps metadata
	}
	owners, before := references(a.GetObject()), references(a.GetOldObject())
	if equality.Semantic.DeepEqual(owners, before) {
		return nil
	}
	if a.GetOperation() != admission.Create {
		record := o.record(a, "delete", a.GetResource(), a.GetName())
		record.Namespace, record.Subresource = a.GetNamespace(), a.GetSubresource()
		if reason, ok := o.allowed(ctx, record); !ok {
			return admission.NewForbidden(a, fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %s", reason))
		}
	}
	for _, ref := range owners {
		if blocks(ref) && !slices.ContainsFunc(before, func(old metav1.OwnerReference) bool { return old.UID == ref.UID && blocks(old) }) {
			if err := o.mayBlock(ctx, a, ref); err != nil {
				return admission.NewForbidden(a, err)
			}
		}
	}
	return nil
}

// mayBlock checks the permission to keep an owner from being deleted.
func (o *ownerPermissions) mayBlock(ctx context.Context, a admission.Attributes, ref metav1.OwnerReference) error {
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	mappings, err := o.mapper.RESTMappings(gvk.GroupKind(), gvk.Version)
	if meta.IsNoMatchError(err) { // its CRD may be newer than what the mapper has read
		meta.MaybeResetRESTMapper(o.mapper)
		mappings, err = o.mapper.RESTMappings(gvk.GroupKind(), gvk.Version)
	}
	if err != nil {
		return fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w",
			ref.APIVersion, ref.Kind, err)
	}
	for _, m := range mappings {
		record := o.record(a, "update", m.Resource, ref.Name)
		record.Subresource = "finalizers"
		if m.Scope.Name() == meta.RESTScopeNameNamespace {
			record.Namespace = a.GetNamespace()
		}
		if reason, ok := o.allowed(ctx, record); !ok {
			return fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource "+
				"you can't set finalizers on: %s", reason)
		}
	}
	return nil
}

func (o *ownerPermissions) record(
	a admission.Attributes, verb string, r schema.GroupVersionResource, name string,
) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: verb, ResourceRequest: true,
		APIGroup: r.Group, APIVersion: r.Version, Resource: r.Resource, Name: name,
	}
}

// allowed tells whether the user may, and why not.
func (o *ownerPermissions) allowed(ctx context.Context, record *authorizer.AttributesRecord) (string, bool) {
	decision, reason, err := o.authorizer.Authorize(ctx, record)
	return fmt.Sprintf("%s, %v", reason, err), err == nil && decision == authorizer.DecisionAllow
}

func references(obj runtime.Object) []metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil // it has no metadata, so no owners
	}
	return m.GetOwnerReferences()
}

func blocks(r metav1.OwnerReference) bool { return ptr.Deref(r.BlockOwnerDeletion, false) }
