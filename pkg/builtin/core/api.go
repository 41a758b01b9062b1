package core

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
)

// shared is the core group, made once per process: its parts know nothing of
// each other, and its scheme, codecs and definitions are the same for every plane.
var shared = sync.OnceValue(func() *apis.Group {
	definitions := meta.And(
		namespaceDefinitions, configMapDefinitions, secretDefinitions, eventDefinitions, serviceAccountDefinitions,
		resourceQuotaDefinitions, limitRangeDefinitions, serviceDefinitions, endpointsDefinitions)
	return apis.NewGroup(corev1.SchemeGroupVersion, nil, definitions,
		namespaces(), configMaps(), secrets(), events(), serviceAccounts(), resourceQuotas(), limitRanges(), services(), endpoints())
})

// immutableError is what Kubernetes answers to a change of an immutable
// ConfigMap or Secret.
func immutableError(name string) *field.Error {
	return field.Forbidden(field.NewPath(name), "field is immutable when `immutable` is set")
}

func isTrue(b *bool) bool { return b != nil && *b }
