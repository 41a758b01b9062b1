package certificates

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// PodCertificateRequests is the part that serves podcertificaterequests
// (certificates.k8s.io/v1) with their status, with which the agent of a node asks
// for the certificate of a pod. The spec never changes. To write the status, a
// user needs the permission to "sign" for the signer, as with
// [CertificateSigningRequests]; the status says once and for all that the
// certificate is issued, denied or failed.
//
// The part does not compare a request with the pod and the node that it names: where
// agents are not to be trusted, let an admission policy do so. A [Signer] does not
// answer these requests. Old requests stay until they are deleted.
type PodCertificateRequests struct{}

// Install adds podcertificaterequests to the group.
func (PodCertificateRequests) Install(p *controlplane.Plan) error {
	d := podRequests(&signers{})
	if err := d.Err(); err != nil {
		return err
	}
	served := d.Resource(certificatesv1.SchemeGroupVersion)
	served.Build = func(config controlplane.BuildConfig) (controlplane.ResourceStorage, error) {
		return podRequests(&signers{config.Authorizer}).Resource(certificatesv1.SchemeGroupVersion).Build(config)
	}
	p.Serve(shared().API(), served)
	return nil
}

type podRequest = certificatesv1.PodCertificateRequest

func podRequests(s *signers) *apis.Definition {
	return apis.Resource[podRequest, certificatesv1.PodCertificateRequestList]("podcertificaterequests",
		apis.NoGeneration(),
		apis.Default(func(r *podRequest) {
			if r.Spec.MaxExpirationSeconds == nil {
				r.Spec.MaxExpirationSeconds = new(int32(24 * time.Hour / time.Second))
			}
		}),
		apis.PrepareForCreate(func(_ context.Context, r *podRequest) { r.Status = certificatesv1.PodCertificateRequestStatus{} }),
		apis.PrepareForUpdate(func(_ context.Context, r, old *podRequest) { old.Status.DeepCopyInto(&r.Status) }),
		apis.ValidateUpdate(func(_ context.Context, r, old *podRequest) field.ErrorList {
			return apivalidation.ValidateImmutableField(r.Spec, old.Spec, field.NewPath("spec"))
		}),
		apis.SelectableFields(map[string]func(*podRequest) string{
			"spec.signerName": func(r *podRequest) string { return r.Spec.SignerName },
			"spec.podName":    func(r *podRequest) string { return r.Spec.PodName },
			"spec.nodeName":   func(r *podRequest) string { return string(r.Spec.NodeName) },
		}),
		apis.Table(podRow, podColumns()...),
		apis.ValidateCreate(func(_ context.Context, r *podRequest) field.ErrorList { return validatePodSpec(r) }),
		apis.Ignores("status"),
		// Not apis.Status: the error for a missing permission names a field of the spec.
		apis.UpdateSubresource("status", apis.Update[podRequest]{
			Keep: func(r, old *podRequest) {
				old.Spec.DeepCopyInto(&r.Spec)
				metav1.ResetObjectMetaForStatus(&r.ObjectMeta, &old.ObjectMeta)
			},
			Ignores:  []string{"metadata", "spec"},
			Validate: s.validatePodUpdate,
		}),
	)
}

func podColumns() []metav1.TableColumnDefinition {
	spec := certificatesv1.PodCertificateRequestSpec{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		nameColumn(),
		{Name: "PodName", Type: "string", Description: spec["podName"]},
		{Name: "ServiceAccountName", Type: "string", Description: spec["serviceAccountName"]},
		{Name: "NodeName", Type: "string", Description: spec["nodeName"]},
		{Name: "SignerName", Type: "string", Description: spec["signerName"]},
		{Name: "State", Type: "string", Description: "Is the request Pending, Issued, Denied, or Failed?"},
		{Name: "UnverifiedUserAnnotations", Type: "string", Description: spec["unverifiedUserAnnotations"]},
	}
}

func podRow(r *podRequest) []any {
	s := &r.Spec
	return []any{
		r.Name, s.PodName, s.ServiceAccountName, string(s.NodeName), s.SignerName, cmp.Or(outcome(r), "Pending"),
		labels.FormatLabels(s.UnverifiedUserAnnotations),
	}
}

// What may be asked for.
const (
	longestUID      = 128
	longestStub     = 10 * 1024 // bytes of a request
	shortestLife    = time.Hour
	longestLife     = 91 * 24 * time.Hour
	longestKubeLife = 24 * time.Hour // for signers of Kubernetes itself
)

// validatePodSpec is for new requests: the spec never changes.
func validatePodSpec(r *podRequest) field.ErrorList {
	path, s := field.NewPath("spec"), &r.Spec
	errs := validateSignerName(s.SignerName, path.Child("signerName"))
	errs = append(errs, validateUserAnnotations(s.UnverifiedUserAnnotations, path.Child("unverifiedUserAnnotations"))...)
	for _, who := range []struct{ kind, name, uid string }{
		{"pod", s.PodName, string(s.PodUID)},
		{"serviceAccount", s.ServiceAccountName, string(s.ServiceAccountUID)},
		{"node", string(s.NodeName), string(s.NodeUID)},
	} {
		errs = append(errs, check.Messages(path.Child(who.kind+"Name"), who.name, apivalidation.NameIsDNSSubdomain(who.name, false))...)
		if who.uid == "" {
			errs = append(errs, field.Invalid(path.Child(who.kind+"UID"), who.uid, "must not be empty"))
		}
		if len(who.uid) > longestUID {
			errs = append(errs, field.TooLong(path.Child(who.kind+"UID"), who.uid, longestUID))
		}
	}
	errs = append(errs, validateLife(s, path.Child("maxExpirationSeconds"))...)
	return append(errs, validateStub(s.StubPKCS10Request, path.Child("stubPKCS10Request"))...)
}

func validateUserAnnotations(all map[string]string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(all)) {
		errs = append(errs, validation.IsDomainPrefixedKey(path, strings.ToLower(key))...)
	}
	if apivalidation.ValidateAnnotationsSize(all) != nil {
		errs = append(errs, field.TooLong(path, "", apivalidation.TotalAnnotationSizeLimitB))
	}
	return errs
}

// validateLife checks the lifetime that is asked for.
func validateLife(s *certificatesv1.PodCertificateRequestSpec, path *field.Path) field.ErrorList {
	if s.MaxExpirationSeconds == nil {
		return field.ErrorList{field.Required(path, "must be set")}
	}
	longest := longestLife
	if domain, _, _ := strings.Cut(s.SignerName, "/"); domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") {
		longest = longestKubeLife
	}
	if life := time.Duration(*s.MaxExpirationSeconds) * time.Second; life < shortestLife || life > longest {
		return field.ErrorList{field.Invalid(path, *s.MaxExpirationSeconds,
			fmt.Sprintf("must be in the range [%.0f, %.0f]", shortestLife.Seconds(), longest.Seconds()))}
	}
	return nil
}

// validateStub checks a request in DER, of which only the key and the signature matter.
func validateStub(der []byte, path *field.Path) field.ErrorList {
	if len(der) == 0 {
		return field.ErrorList{field.Required(path, "")}
	}
	if len(der) > longestStub {
		return field.ErrorList{field.TooLong(path, "", longestStub)}
	}
	parsed, err := x509.ParseCertificateRequest(der)
	problem := ""
	switch {
	case err != nil:
		problem = "must be a valid PKCS#10 CSR"
	case badKey(parsed.PublicKey) != "":
		problem = badKey(parsed.PublicKey)
	case parsed.CheckSignature() != nil:
		problem = "invalid signature"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(path, field.OmitValueType{}, problem)}
}

// badKey tells why a key may have no certificate.
func badKey(key any) string {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ""
	case *ecdsa.PublicKey:
		if slices.Contains([]elliptic.Curve{elliptic.P256(), elliptic.P384(), elliptic.P521()}, key.Curve) {
			return ""
		}
		return "elliptic public keys must use curve P256, P384, or P521"
	case *rsa.PublicKey:
		if bits := key.Size() * 8; bits == 3072 || bits == 4096 {
			return ""
		}
		return "RSA keys must have modulus size 3072 or 4096"
	}
	return "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
}
