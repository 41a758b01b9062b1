package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Conversion is the part that converts the custom resources of a kind from one
// version to another by a handler in the process. It needs no webhook server and
// no certificate: CRDs of the kind get it as their conversion webhook when they
// are written, whatever conversion they name, and the plane calls it without a
// socket. Use it with [Definitions].
type Conversion struct {
	// Kind is the kind to convert, as spec.group and spec.names.kind of the CRD. Required.
	Kind schema.GroupKind
	// Handler answers ConversionReviews of apiextensions.k8s.io/v1, as conversion
	// webhooks do (see "Webhook conversion" in the Kubernetes documentation of CRDs):
	// a [ConvertFunc], or the conversion webhook of controller-runtime. Required.
	Handler http.Handler
}

// PartName implements the name errors use.
func (c Conversion) PartName() string { return "conversion of " + c.Kind.String() }

// Install declares the handler, and that CRDs of the kind get it.
func (c Conversion) Install(p *controlplane.Plan) error {
	var errs []error
	if c.Kind.Group == "" || c.Kind.Kind == "" {
		errs = append(errs, errors.New("field Kind: the group or the kind is empty: set both"))
	}
	if c.Handler == nil {
		errs = append(errs, errors.New("field Handler: is nil: set a converter, such as a crd.ConvertFunc"))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	p.ServeHost(c.host(), c.Handler)
	p.Admit("convert "+c.Kind.String()+" in the process", c)
	return nil
}

// host is a name that nobody has: RFC 2606, section 2.
func (c Conversion) host() string { return strings.ToLower(c.Kind.String()) + ".conversion.invalid" }

// Handles implements admission.Interface.
func (Conversion) Handles(op admission.Operation) bool {
	return op == admission.Create || op == admission.Update
}

// Admit implements admission.MutationInterface: it gives CRDs of the kind the
// handler.
func (c Conversion) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().GroupResource() != apiextensions.Resource("customresourcedefinitions") || a.GetSubresource() != "" {
		return nil
	}
	crd, ok := a.GetObject().(*apiextensions.CustomResourceDefinition)
	if !ok || crd.Spec.Group != c.Kind.Group || crd.Spec.Names.Kind != c.Kind.Kind {
		return nil
	}
	url := "https://" + c.host()
	crd.Spec.Conversion = &apiextensions.CustomResourceConversion{
		Strategy:                 apiextensions.WebhookConverter,
		WebhookClientConfig:      &apiextensions.WebhookClientConfig{URL: &url},
		ConversionReviewVersions: []string{apiextensionsv1.SchemeGroupVersion.Version},
	}
	return nil
}

// ConvertFunc converts an object, in place, to a version such as "v2"; the object
// names its present one. Its apiVersion is set when it returns. What it does to
// metadata other than labels and annotations is undone or, for the name, refused.
// The client gets the error.
type ConvertFunc func(ctx context.Context, object *unstructured.Unstructured, version string) error

// ServeHTTP answers a ConversionReview.
func (f ConvertFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	review := &apiextensionsv1.ConversionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		http.Error(w, "read a ConversionReview: "+err.Error(), http.StatusBadRequest)
		return
	}
	if review.Request == nil {
		http.Error(w, "the ConversionReview has no request", http.StatusBadRequest)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	converted, err := f.convert(r.Context(), review.Request)
	if err != nil {
		response.Result = metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
	}
	response.ConvertedObjects = converted
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	// A client that went away needs no answer.
	_ = json.NewEncoder(w).Encode(review)
}

func (f ConvertFunc) convert(ctx context.Context, request *apiextensionsv1.ConversionRequest) ([]runtime.RawExtension, error) {
	to, err := schema.ParseGroupVersion(request.DesiredAPIVersion)
	if err != nil {
		return nil, err
	}
	converted := make([]runtime.RawExtension, 0, len(request.Objects))
	for _, raw := range request.Objects {
		o := &unstructured.Unstructured{}
		if err := o.UnmarshalJSON(raw.Raw); err != nil {
			return nil, err
		}
		if err := f(ctx, o, to.Version); err != nil {
			return nil, fmt.Errorf("convert %s %s to %s: %w", o.GetKind(), o.GetName(), to.Version, err)
		}
		o.SetAPIVersion(request.DesiredAPIVersion)
		converted = append(converted, runtime.RawExtension{Object: o})
	}
	return converted, nil
}
