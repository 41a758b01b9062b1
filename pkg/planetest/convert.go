package planetest

import (
	"net/http"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
)

// ConvertFunc converts an object, in place, to a version such as "v2": see
// [crd.ConvertFunc].
type ConvertFunc = crd.ConvertFunc

// Convert makes the plane convert the custom resources of a kind with a function,
// with no webhook server and no certificate. Its CRD needs no spec.conversion:
// the plane replaces it with every write.
func Convert(kind schema.GroupKind, f ConvertFunc) controlplane.Part {
	return crd.Conversion{Kind: kind, Handler: f}
}

// ConvertWith is like [Convert], for a conversion webhook: a handler that answers
// ConversionReviews. For types that are Hub and Convertible it is that of
// controller-runtime, conversion.NewWebhookHandler(scheme, conversion.NewRegistry()).
func ConvertWith(kind schema.GroupKind, webhook http.Handler) controlplane.Part {
	return crd.Conversion{Kind: kind, Handler: webhook}
}
