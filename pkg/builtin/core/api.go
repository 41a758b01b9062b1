package core

import (
	"errors"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
	"github.com/sailplane-dev/sailplane/pkg/resource"
)

// sharedAPI is the core group, made once per process: its parts know nothing of
// each other, and its scheme, codecs and definitions are the same for every plane.
var sharedAPI = sync.OnceValue(func() *controlplane.API {
	return controlplane.NewAPI(corev1.GroupName, []string{corev1.SchemeGroupVersion.Version}, controlplane.APIConfig{
		AddToScheme: addToScheme,
		Definitions: func() (common.GetOpenAPIDefinitions, error) {
			return meta.And(
				namespaceDefinitions, configMapDefinitions, secretDefinitions, eventDefinitions, serviceAccountDefinitions,
				resourceQuotaDefinitions, limitRangeDefinitions, serviceDefinitions, endpointsDefinitions,
			), nil
		},
		Protobuf: true,
	})
})

func addToScheme(s *runtime.Scheme) error {
	var errs []error
	for _, d := range []*resource.Definition{
		namespaces(), configMaps(), secrets(), events(), serviceAccounts(),
		resourceQuotas(), limitRanges(), services(), endpoints(),
	} {
		errs = append(errs, d.Register(s, corev1.SchemeGroupVersion))
	}
	return errors.Join(errs...)
}

// immutableError is what Kubernetes answers to a change of an immutable
// ConfigMap or Secret.
func immutableError(name string) *field.Error {
	return field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set")
}

func isTrue(b *bool) bool { return b != nil && *b }

// serve adds a resource to the core group of a plane.
func serve(p *controlplane.Plan, d *resource.Definition) error {
	if err := d.Err(); err != nil {
		return err
	}
	p.Serve(sharedAPI(), d.Resource(corev1.SchemeGroupVersion))
	return nil
}
