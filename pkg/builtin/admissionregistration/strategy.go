package admissionregistration

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// options are what all resources of the group have in common. check validates an
// object that is created (old is nil) or that replaces an old one: a stored
// expression is compiled with everything that this version knows, a new one only
// with what the previous version knew too.
func options[T any](check func(obj, old *T) field.ErrorList, more ...apis.Option) []apis.Option {
	return append(more,
		apis.ClusterScoped(),
		apis.Categories("api-extensions"),
		apis.ValidateCreate(func(_ context.Context, obj *T) field.ErrorList {
			return append(reservedName(obj), check(obj, nil)...)
		}),
		apis.ValidateUpdate(func(_ context.Context, obj, old *T) field.ErrorList { return check(obj, old) }),
		apis.Store(func(s *registry.Store) { s.UpdateStrategy = update{s.UpdateStrategy} }))
}

// staticSuffix ends the names of objects that kube-apiserver reads from files (KEP-5793).
const staticSuffix = ".static.k8s.io"

// reservedName refuses such a name, as kube-apiserver does: the same manifests go to both.
func reservedName(obj any) field.ErrorList {
	m, err := meta.Accessor(obj)
	if err != nil || !strings.HasSuffix(m.GetName(), staticSuffix) {
		return nil
	}
	why := fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API",
		staticSuffix)
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), m.GetName(), why)}
}

// update refuses to replace an object without metadata.resourceVersion: the
// client must have read it.
type update struct{ rest.RESTUpdateStrategy }

func (update) AllowUnconditionalUpdate(context.Context) bool { return false }

// columns describes the columns between Name and Age.
func columns(names ...string) []metav1.TableColumnDefinition {
	all := map[string]metav1.TableColumnDefinition{
		"Webhooks":    {Type: "integer", Description: "Webhooks indicates the number of webhooks registered in this configuration"},
		"Validations": {Type: "integer", Description: "Validations indicates the number of validation rules defined in this configuration"},
		"Mutations":   {Type: "integer", Description: "Mutations indicates the number of mutations defined in this configuration"},
		"ParamKind":   {Type: "string", Description: "ParamKind specifies the kind of resources used to parameterize this policy"},
		"PolicyName":  {Type: "string", Description: "PolicyName indicates the policy definition which the policy binding binded to"},
		"ParamRef":    {Type: "string", Description: "ParamRef indicates the param resource which sets the configuration param"},
	}
	var cols []metav1.TableColumnDefinition
	for _, name := range names {
		c := all[name]
		c.Name = name
		cols = append(cols, c)
	}
	return cols
}
