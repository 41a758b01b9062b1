package admissionregistration

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes"
)

// The kinds that name parameters.
const (
	validatingPolicyKind  = "ValidatingAdmissionPolicy"
	validatingBindingKind = "ValidatingAdmissionPolicyBinding"
	mutatingPolicyKind    = "MutatingAdmissionPolicy"
	mutatingBindingKind   = "MutatingAdmissionPolicyBinding"
)

// permission is an admission plugin that asks whether the user may read the parameters that
// objects of one kind name: otherwise authors of policies could see them in answers. In
// kube-apiserver it is a part of validation; its errors here are of validation too.
type permission struct {
	*admission.Handler
	kind       string
	authorizer authorizer.Authorizer
	mapper     meta.RESTMapper
	client     kubernetes.Interface
}

var (
	_ admission.ValidationInterface          = &permission{}
	_ initializer.WantsAuthorizer            = &permission{}
	_ initializer.WantsRESTMapper            = &permission{}
	_ initializer.WantsExternalKubeClientSet = &permission{}
)

// params is what an object says of its parameters.
type params struct {
	kind   *admissionv1.ParamKind
	policy string
	ref    *admissionv1.ParamRef
}

// paramsOf returns the parameters that a policy or a binding names, and false for
// other objects.
func paramsOf(obj runtime.Object) (params, bool) {
	switch o := obj.(type) {
	case *admissionv1.ValidatingAdmissionPolicy:
		return params{kind: o.Spec.ParamKind}, true
	case *admissionv1.MutatingAdmissionPolicy:
		return params{kind: o.Spec.ParamKind}, true
	case *admissionv1.ValidatingAdmissionPolicyBinding:
		return params{policy: o.Spec.PolicyName, ref: o.Spec.ParamRef}, true
	case *admissionv1.MutatingAdmissionPolicyBinding:
		return params{policy: o.Spec.PolicyName, ref: o.Spec.ParamRef}, true
	}
	return params{}, false
}

// paramKind is that of the policy of a binding.
func (p *permission) paramKind(ctx context.Context, name string) (*admissionv1.ParamKind, error) {
	policies := p.client.AdmissionregistrationV1()
	if p.kind == validatingBindingKind {
		policy, err := policies.ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return policy.Spec.ParamKind, nil
	}
	policy, err := policies.MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return policy.Spec.ParamKind, nil
}

func newPermission(kind string) *permission {
	return &permission{Handler: admission.NewHandler(admission.Create, admission.Update), kind: kind}
}

func (p *permission) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

func (p *permission) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

func (p *permission) SetExternalKubeClientSet(c kubernetes.Interface) { p.client = c }

func (p *permission) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil || p.client == nil {
		return errors.New("it needs an authorizer, a RESTMapper and a client")
	}
	return nil
}

// Validate refuses parameters that the user may not read.
func (p *permission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	now, ok := paramsOf(a.GetObject())
	if !ok || a.GetKind().Kind != p.kind || a.GetSubresource() != "" || now.kind == nil && now.ref == nil {
		return nil
	}
	if old, ok := paramsOf(a.GetOldObject()); ok && reflect.DeepEqual(now, old) {
		return nil
	}
	refused, at := "", field.NewPath("spec", "paramKind")
	if now.ref == nil {
		refused = fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
			a.GetUserInfo(), now.kind.Kind, now.kind.APIVersion)
	} else {
		at = field.NewPath("spec", "paramRef")
		refused = fmt.Sprintf(`user %v does not have %q permission on the object referenced by paramRef`, a.GetUserInfo(), now.verb())
		if kind, err := p.paramKind(ctx, now.policy); err == nil {
			now.kind = kind
		}
	}
	decision, reason, err := p.authorizer.Authorize(ctx, p.attributes(a, now))
	switch {
	case decision == authorizer.DecisionAllow:
		return nil
	case err != nil:
		refused += ": " + err.Error()
	case reason != "":
		refused += ": " + reason
	}
	kind := schema.GroupKind{Group: admissionv1.GroupName, Kind: p.kind}
	return apierrors.NewInvalid(kind, a.GetName(), field.ErrorList{field.Forbidden(at, refused)})
}

// verb is the verb to ask about.
func (p params) verb() string {
	if p.ref != nil && p.ref.Name == "" {
		return "list"
	}
	return "get"
}

// attributes ask about the parameters. What is not known yet, such as the
// resource of a kind that is not served, is "*".
func (p *permission) attributes(a admission.Attributes, of params) authorizer.AttributesRecord {
	asked := authorizer.AttributesRecord{
		User: a.GetUserInfo(), Verb: of.verb(), ResourceRequest: true,
		APIGroup: "*", APIVersion: "*", Resource: "*", Namespace: "*", Name: "*",
	}
	if of.ref != nil {
		asked.Name = of.ref.Name
		if of.ref.Namespace != "" {
			asked.Namespace = of.ref.Namespace
		}
	}
	if of.kind == nil {
		return asked
	}
	gv, err := schema.ParseGroupVersion(of.kind.APIVersion)
	if err != nil {
		return asked
	}
	asked.APIGroup, asked.APIVersion = gv.Group, gv.Version
	if mapping, err := p.mapping(gv.WithKind(of.kind.Kind)); err == nil {
		asked.Resource = mapping.Resource.Resource
	}
	return asked
}

// mapping asks the server again when the kind is not known: it may be new.
func (p *permission) mapping(kind schema.GroupVersionKind) (*meta.RESTMapping, error) {
	mapping, err := p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		meta.MaybeResetRESTMapper(p.mapper)
		mapping, err = p.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	return mapping, err
}
