package crd

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Limits bound what CRDs cost that come through the API. A schema takes some two
// kilobytes of memory as long as its CRD is there, and 0.2 ms of a processor when it is
// written, however short its text. A zero field stands for a default, controlplane.Unlimited
// limits nothing. A CRD that is there may always be updated to one that is not larger.
type Limits struct {
	// Schemas is how many a CRD may have in all of its versions together: its own, and
	// one for each property, item and alternative. More is refused with 422. Empty:
	// 10,000; the largest known CRD has 7,200.
	Schemas int
	// Rules is how many x-kubernetes-validations it may have. Kubernetes bounds what
	// they may cost when they run; they are also compiled. More is refused with 422.
	// Empty: 1,000.
	Rules int
	// AllSchemas is how many schemas the CRDs of a plane may have together. A CRD that
	// does not fit is refused with 403. Empty: 300,000.
	AllSchemas int
}

// withDefaults has a value in every field.
func (l Limits) withDefaults() (Limits, error) {
	for _, f := range []struct {
		name  string
		value *int
		def   int
	}{{"Schemas", &l.Schemas, 10_000}, {"Rules", &l.Rules, 1_000}, {"AllSchemas", &l.AllSchemas, 300_000}} {
		switch {
		case *f.value < controlplane.Unlimited:
			return l, fmt.Errorf("crds: Limits.%s is %d: want a number above 0, 0 for the default, or Unlimited", f.name, *f.value)
		case *f.value == 0:
			*f.value = f.def
		}
	}
	return l, nil
}

// size is what a CRD has of what is limited.
type size struct{ schemas, rules int }

// limiting refuses CRDs that are too large before they are validated, which costs most.
type limiting struct {
	Limits
	groups *groups

	mu    sync.Mutex
	known map[types.UID]sized
}

// sized is how large a CRD was at a generation.
type sized struct {
	generation int64
	schemas    int
}

// Handles implements admission.Interface.
func (*limiting) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface.
func (l *limiting) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok || a.GetSubresource() != "" || a.GetUserInfo().GetName() == user.APIServerUser {
		return nil
	}
	now, before := sizeOf(crd), size{}
	if old, ok := a.GetOldObject().(*apiextensions.CustomResourceDefinition); ok {
		before = sizeOf(old)
	}
	var errs field.ErrorList
	if now.schemas > before.schemas && above(now.schemas, l.Schemas) {
		errs = append(errs, tooMany("schemas", now.schemas, l.Schemas, "Schemas"))
	}
	if now.rules > before.rules && above(now.rules, l.Rules) {
		errs = append(errs, tooMany("x-kubernetes-validations", now.rules, l.Rules, "Rules"))
	}
	if len(errs) > 0 {
		return apierrors.NewInvalid(a.GetKind().GroupKind(), crd.Name, errs)
	}
	if l.AllSchemas == controlplane.Unlimited || now.schemas <= before.schemas {
		return nil
	}
	if all := l.all(crd.UID); all+now.schemas > l.AllSchemas {
		return admission.NewForbidden(a, fmt.Errorf("it has %d schemas, and all other CRDs of the server have %d: together they may have "+
			"%d; delete CRDs that nobody uses, or have the operator raise the limit AllSchemas", now.schemas, all, l.AllSchemas))
	}
	return nil
}

func above(n, limit int) bool { return limit != controlplane.Unlimited && n > limit }

func tooMany(what string, n, limit int, name string) *field.Error {
	return field.Forbidden(field.NewPath("spec", "versions"), fmt.Sprintf(
		"%d %s in all versions together, and at most %d are allowed: remove versions that are not served, or parts that nobody sets, "+
			"or have the operator raise the limit %s", n, what, limit, name))
}

// all is how many schemas the CRDs have, but for one.
func (l *limiting) all(but types.UID) int {
	crds, err := l.groups.lister.List(labels.Everything())
	if err != nil {
		return 0 // a lister over a synced informer does not fail
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	known, n := make(map[types.UID]sized, len(crds)), 0
	for _, crd := range crds {
		s, ok := l.known[crd.UID]
		if !ok || s.generation != crd.Generation {
			s = sized{crd.Generation, schemasOf(crd)}
		}
		known[crd.UID] = s
		if crd.UID != but {
			n += s.schemas
		}
	}
	l.known = known
	return n
}

// sizeOf counts in all versions.
func sizeOf(crd *apiextensions.CustomResourceDefinition) size {
	var n size
	if crd.Spec.Validation != nil { // the same in all versions, which are stored one by one
		n.add(crd.Spec.Validation.OpenAPIV3Schema)
		n = size{n.schemas * len(crd.Spec.Versions), n.rules * len(crd.Spec.Versions)}
	}
	for i := range crd.Spec.Versions {
		if v := crd.Spec.Versions[i].Schema; v != nil {
			n.add(v.OpenAPIV3Schema)
		}
	}
	return n
}

// add counts a schema with what is in it. Its depth was bounded when it was read.
func (n *size) add(s *apiextensions.JSONSchemaProps) {
	if s == nil {
		return
	}
	n.schemas++
	n.rules += len(s.XValidations)
	n.add(s.Not)
	if s.Items != nil {
		n.add(s.Items.Schema)
		n.addAll(s.Items.JSONSchemas)
	}
	for _, all := range [][]apiextensions.JSONSchemaProps{s.AllOf, s.AnyOf, s.OneOf} {
		n.addAll(all)
	}
	for _, all := range []map[string]apiextensions.JSONSchemaProps{s.Properties, s.PatternProperties, s.Definitions} {
		for _, one := range all {
			n.add(&one)
		}
	}
	for _, one := range []*apiextensions.JSONSchemaPropsOrBool{s.AdditionalProperties, s.AdditionalItems} {
		if one != nil {
			n.add(one.Schema)
		}
	}
	for _, one := range s.Dependencies {
		n.add(one.Schema)
	}
}

func (n *size) addAll(all []apiextensions.JSONSchemaProps) {
	for i := range all {
		n.add(&all[i])
	}
}

// schemasOf is how many schemas a CRD has that an informer holds.
func schemasOf(crd *apiextensionsv1.CustomResourceDefinition) int {
	internal := &apiextensions.CustomResourceDefinition{}
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, internal, nil)
	if err != nil {
		return 0 // it was converted before
	}
	return sizeOf(internal).schemas
}
