package serviceaccount

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/token/jwt"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
)

// How long a token may last, and lasts by default, as in Kubernetes.
const (
	shortest       = 10 * time.Minute
	longestSeconds = int64(1) << 32
	defaultSeconds = int64(3600)
)

// subresource is where tokens are requested.
const subresource = "serviceaccounts/token"

// api is what the part adds to the core group, made once per process. The kind
// is of another group, as that of scale sub-resources is.
var api = sync.OnceValue(func() *controlplane.API {
	return controlplane.NewAPI(corev1.GroupName, []string{corev1.SchemeGroupVersion.Version}, controlplane.APIConfig{
		AddToScheme: addToScheme,
		Definitions: func() (common.GetOpenAPIDefinitions, error) { return meta.And(definitions), nil },
		Protobuf:    true,
	})
})

func addToScheme(s *runtime.Scheme) error {
	for _, version := range []string{kind().Version, runtime.APIVersionInternal} {
		s.AddKnownTypes(schema.GroupVersion{Group: kind().Group, Version: version}, &authenticationv1.TokenRequest{})
	}
	s.AddTypeDefaultingFunc(&authenticationv1.TokenRequest{}, func(obj any) {
		if r, ok := obj.(*authenticationv1.TokenRequest); ok && r.Spec.ExpirationSeconds == nil {
			r.Spec.ExpirationSeconds = new(defaultSeconds)
		}
	})
	return nil
}

func kind() schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// build makes the storage of the sub-resource.
func (i *issuer) build(controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
	return controlplane.ResourceStorage{
		corev1.SchemeGroupVersion.Version: {subresource: tokenRequests{i}},
	}, nil
}

// tokenRequests answers requests for tokens and stores nothing: a dry run, which
// admission sees, is answered like any other request.
type tokenRequests struct{ *issuer }

var (
	_ rest.NamedCreater                   = tokenRequests{}
	_ rest.GroupVersionKindProvider       = tokenRequests{}
	_ rest.SubresourceObjectMetaPreserver = tokenRequests{}
)

// New implements rest.Storage.
func (tokenRequests) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy implements rest.Storage.
func (tokenRequests) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (tokenRequests) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind { return kind() }

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID of the
// request, which may say which account is meant.
func (tokenRequests) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create implements rest.NamedCreater. The order of the checks and their words
// are those of Kubernetes.
func (t tokenRequests) Create(
	ctx context.Context, name string, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions,
) (runtime.Object, error) {
	r, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, fmt.Errorf("%T is not a %T", obj, r)
	}
	namespace, ok := request.NamespaceFrom(ctx)
	if !ok || namespace == "" {
		return nil, apierrors.NewBadRequest("namespace is required")
	}
	now := t.now.Load()
	if now == nil {
		return nil, apierrors.NewServiceUnavailable("service account tokens: the server is starting")
	}
	if err := checkMeta(r, namespace, name); err != nil {
		return nil, err
	}
	account, err := now.account(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	if err := t.complete(r, account); err != nil {
		return nil, err
	}
	if errs := validateRequest(r); len(errs) > 0 {
		return nil, apierrors.NewInvalid(kind().GroupKind(), "", errs)
	}
	if validate != nil {
		if err := validate(ctx, r.DeepCopy()); err != nil {
			return nil, err
		}
	}
	c := t.claims(account, r.Spec.Audiences)
	if err := now.bind(ctx, r.Spec.BoundObjectRef, c); err != nil {
		return nil, err
	}
	t.shorten(ctx, r)
	return r, t.issue(ctx, now.keys, c, r)
}

// checkMeta tells whether the request is about the account that the path names.
func checkMeta(r *authenticationv1.TokenRequest, namespace, name string) error {
	wrong := func(what, is string) error {
		return apierrors.NewInvalid(kind().GroupKind(), name, field.ErrorList{field.Invalid(
			field.NewPath("metadata", what), is, fmt.Sprintf("must match the service account %s if specified", what))})
	}
	switch {
	case r.Name != "" && r.Name != name:
		return wrong("name", r.Name)
	case r.Namespace != "" && r.Namespace != namespace:
		return wrong("namespace", r.Namespace)
	}
	return nil
}

// complete sets what the client left out, and clears what it may not set.
func (i *issuer) complete(r *authenticationv1.TokenRequest, account *corev1.ServiceAccount) error {
	if r.UID != "" && r.UID != account.UID {
		return conflict(kind(), account.Name, fmt.Errorf(
			"the UID in the token request (%s) does not match the UID of the service account (%s)", r.UID, account.UID))
	}
	r.Name, r.Namespace, r.UID = account.Name, account.Namespace, account.UID
	r.CreationTimestamp = metav1.Now()
	r.Status = authenticationv1.TokenRequestStatus{}
	if len(r.Spec.Audiences) == 0 {
		r.Spec.Audiences = append([]string(nil), i.Audiences...)
	}
	return nil
}

func validateRequest(r *authenticationv1.TokenRequest) field.ErrorList {
	at := field.NewPath("spec", "expirationSeconds")
	switch seconds := ptr.Deref(r.Spec.ExpirationSeconds, 0); { // 0, as in Kubernetes, when admission removed it
	case seconds < int64(shortest.Seconds()):
		return field.ErrorList{field.Invalid(at, seconds, "may not specify a duration less than 10 minutes")}
	case seconds > longestSeconds:
		return field.ErrorList{field.Invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")}
	}
	return nil
}

// shorten limits the token to the longest time that tokens may last here.
func (i *issuer) shorten(ctx context.Context, r *authenticationv1.TokenRequest) {
	asked, most := *r.Spec.ExpirationSeconds, int64(i.MaxExpiration.Seconds())
	if asked <= most {
		return
	}
	warning.AddWarning(ctx, "", fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, most))
	r.Spec.ExpirationSeconds = &most
}

// claims are those of an unbound token of the account.
func (i *issuer) claims(account *corev1.ServiceAccount, audiences []string) *claims {
	return &claims{
		Audiences: audiences, ID: string(uuid.NewUUID()), Issuer: i.Issuer,
		Subject: serviceaccount.MakeUsername(account.Namespace, account.Name),
		Kubernetes: kubernetes{
			Namespace: account.Namespace, ServiceAccount: reference{Name: account.Name, UID: account.UID},
		},
	}
}

// issue signs the token.
func (i *issuer) issue(ctx context.Context, keys *keyring, c *claims, r *authenticationv1.TokenRequest) error {
	lasts := time.Duration(*r.Spec.ExpirationSeconds) * time.Second
	c.lasts(r.CreationTimestamp.Time, lasts)
	token, err := keys.sign(c)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	r.Status.Token, r.Status.ExpirationTimestamp = token, metav1.NewTime(r.CreationTimestamp.Add(lasts))
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, jwt.CredentialIDForJTI(c.ID))
	return nil
}

func conflict(gvk schema.GroupVersionKind, name string, err error) error {
	return apierrors.NewConflict(schema.GroupResource{Group: gvk.Group, Resource: gvk.Kind}, name, err)
}

// readable returns why no object can have the name.
func readable(name string) error {
	if name == "" {
		return apierrors.NewBadRequest("Name parameter required.")
	}
	if wrong := content.IsPathSegmentName(name); len(wrong) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", name, strings.Join(wrong, ";")))
	}
	return nil
}
