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

// permission is an admission plugin that asks whether the user may read the
// parameters of a policy: who writes policies could otherwise see them in
// answers. It is a part of validation in kube-apiserver, and its errors are.
type permission struct {
	*admission.Handler
	kinds      paramKinds
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

// paramKinds is what differs between policies and bindings, validating and mutating.
type paramKinds struct {
	kind string
	// params are those an object names, and false for objects of other kinds.
	params func(runtime.Object) (params, bool)
	// policy reads the paramKind of a binding's policy.
	policy func(ctx context.Context, client kubernetes.Interface, name string) (*admissionv1.ParamKind, error)
}

// params is what an object says of its parameters.
type params struct {
	kind   *admissionv1.ParamKind
	policy string
	ref    *admissionv1.ParamRef
}

func validatingKinds() paramKinds {
	return paramKinds{kind: "ValidatingAdmissionPolicy", params: func(obj runtime.Object) (params, bool) {
		p, ok := obj.(*admissionv1.ValidatingAdmissionPolicy)
		if !ok {
			return params{}, false
		}
		return params{kind: p.Spec.ParamKind}, true
	}}
}

func mutatingKinds() paramKinds {
	return paramKinds{kind: "MutatingAdmissionPolicy", params: func(obj runtime.Object) (params, bool) {
		p, ok := obj.(*admissionv1.MutatingAdmissionPolicy)
		if !ok {
			return params{}, false
		}
		return params{kind: p.Spec.ParamKind}, true
	}}
}

func validatingBindingKinds() paramKinds {
	return paramKinds{kind: "ValidatingAdmissionPolicyBinding", params: func(obj runtime.Object) (params, bool) {
		b, ok := obj.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if !ok {
			return params{}, false
		}
		return params{policy: b.Spec.PolicyName, ref: b.Spec.ParamRef}, true
	}, policy: func(ctx context.Context, client kubernetes.Interface, name string) (*admissionv1.ParamKind, error) {
		p, err := client.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return p.Spec.ParamKind, nil
	}}
}

func mutatingBindingKinds() paramKinds {
	return paramKinds{kind: "MutatingAdmissionPolicyBinding", params: func(obj runtime.Object) (params, bool) {
		b, ok := obj.(*admissionv1.MutatingAdmissionPolicyBinding)
		if !ok {
			return params{}, false
		}
		return params{policy: b.Spec.PolicyName, ref: b.Spec.ParamRef}, true
	}, policy: func(ctx context.Context, client kubernetes.Interface, name string) (*admissionv1.ParamKind, error) {
		p, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		return p.Spec.ParamKind, nil
	}}
}

func newPermission(kinds paramKinds) *permission {
	return &permission{Handler: admission.NewHandler(admission.Create, admission.Update), kinds: kinds}
}

// SetAuthorizer implements initializer.WantsAuthorizer.
func (p *permission) SetAuthorizer(a authorizer.Authorizer) { p.authorizer = a }

// SetRESTMapper implements initializer.WantsRESTMapper.
func (p *permission) SetRESTMapper(m meta.RESTMapper) { p.mapper = m }

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (p *permission) SetExternalKubeClientSet(c kubernetes.Interface) { p.client = c }

// ValidateInitialization implements admission.InitializationValidator.
func (p *permission) ValidateInitialization() error {
	if p.authorizer == nil || p.mapper == nil || p.client == nil {
		return errors.New("it was given no authorizer, RESTMapper or client")
	}
	return nil
}

// Validate refuses parameters that the user may not read.
func (p *permission) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	now, ok := p.kinds.params(a.GetObject())
	if !ok || a.GetSubresource() != "" || now.kind == nil && now.ref == nil {
		return nil
	}
	if old, ok := p.kinds.params(a.GetOldObject()); ok && reflect.DeepEqual(now, old) {
		return nil
	}
	refused, at := "", field.NewPath("spec", "paramKind")
	if now.ref == nil {
		refused = fmt.Sprintf(`user %v must have "get" permission on all objects of the referenced paramKind (kind=%s, apiVersion=%s)`,
			a.GetUserInfo(), now.kind.Kind, now.kind.APIVersion)
	} else {
		at = field.NewPath("spec", "paramRef")
		refused = fmt.Sprintf(`user %v does not have %q permission on the object referenced by paramRef`, a.GetUserInfo(), now.verb())
		if kind, err := p.kinds.policy(ctx, p.client, now.policy); err == nil {
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
	kind := schema.GroupKind{Group: admissionv1.GroupName, Kind: p.kinds.kind}
	return apierrors.NewInvalid(kind, a.GetName(), field.ErrorList{field.Forbidden(at, refused)})
}

// verb is what is done with the parameters.
func (p params) verb() string {
	if p.ref != nil && p.ref.Name == "" {
		return "list"
	}
	return "get"
}

// attributes ask for the parameters. What cannot be told yet, such as the
// resource of a kind that is not served, is asked for as "*".
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
