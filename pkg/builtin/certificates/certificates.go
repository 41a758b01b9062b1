// Package certificates has the resources of the group certificates.k8s.io (v1):
//
//   - [CertificateSigningRequests], with which clients ask for certificates
//   - [Signer], which issues those that were approved
//   - [ClusterTrustBundles], which say whom to trust
//   - [PodCertificateRequests], with which the agents of nodes ask on behalf of pods
//
// A request names its signer in spec.signerName. A user with the permission to approve
// for that signer decides, the signer writes the certificate into status.certificate,
// and the client reads it there:
// https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/
package certificates

import (
	"context"
	"errors"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	metatable "k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
	certificatesrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/certificates"
)

// CertificateSigningRequests is the part that serves certificatesigningrequests
// (certificates.k8s.io/v1) with their approval and status sub-resources. It also adds
// the admission plugins CertificateApproval, CertificateSigning and
// CertificateSubjectRestriction: to approve a request, a user needs the permission to
// "approve" for the signer, and to write the certificate, the permission to "sign":
//
//	apiGroups: [certificates.k8s.io]
//	resources: [signers]
//	resourceNames: [example.com/client]  # or example.com/* for the domain
//	verbs: [approve]
//
// The part neither approves nor signs: add a [Signer], or run one outside. Old
// requests stay until they are deleted.
type CertificateSigningRequests struct{}

// Install adds certificatesigningrequests to the group, and the admission plugins.
func (CertificateSigningRequests) Install(p *controlplane.Plan) error {
	if err := shared().Serve(p, requests()); err != nil {
		return err
	}
	p.Admit("CertificateApproval", newApprovalPermission())
	p.Admit("CertificateSigning", newSigningPermission())
	p.Admit("CertificateSubjectRestriction", subjectRestriction{admission.NewHandler(admission.Create)})
	return nil
}

// shared is the group, made once per process: its scheme and definitions are
// the same for every plane.
var shared = sync.OnceValue(func() *apis.Group {
	return apis.NewGroup(certificatesv1.SchemeGroupVersion, addToScheme,
		meta.And(certificateSigningRequestDefinitions, clusterTrustBundleDefinitions, podCertificateRequestDefinitions),
		requests(), bundles(), podRequests(&signers{}))
})

func addToScheme(s *runtime.Scheme) error {
	return errors.Join(certificatesv1.AddToScheme(s), certificatesrules.RegisterValidations(s))
}

// csr is the kind that most of this package handles.
type csr = certificatesv1.CertificateSigningRequest

func requests() *apis.Definition {
	return apis.Resource[csr, certificatesv1.CertificateSigningRequestList]("certificatesigningrequests",
		apis.ClusterScoped(),
		apis.ShortNames("csr"),
		apis.NoGeneration(),
		// Any name is valid that can stand in a path.
		apis.NameValidation(func(string, bool) []string { return nil }),
		apis.PrepareForCreate(prepare),
		apis.PrepareForUpdate(func(_ context.Context, r, old *csr) { r.Spec, r.Status = old.Spec, old.Status }),
		apis.SelectableFields(map[string]func(*csr) string{
			"spec.signerName": func(r *csr) string { return r.Spec.SignerName },
		}),
		apis.Table(row, columns()...),
		apis.ValidateCreate(func(_ context.Context, r *csr) field.ErrorList { return validateSpec(r) }),
		apis.Ignores("spec", "status"),
		// Not apis.StatusAndMetadata: the two share status.
		apis.UpdateSubresource("status", status()),
		apis.UpdateSubresource("approval", approval()),
	)
}

// prepare fills in the caller, whatever the client wrote, and empties the status.
func prepare(ctx context.Context, r *csr) {
	r.Status = certificatesv1.CertificateSigningRequestStatus{}
	spec := &r.Spec
	spec.Username, spec.UID, spec.Groups, spec.Extra = "", "", nil, nil
	user, ok := request.UserFrom(ctx)
	if !ok {
		return
	}
	spec.Username, spec.UID, spec.Groups = user.GetName(), user.GetUID(), user.GetGroups()
	for key, values := range user.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]certificatesv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
}

func columns() []metav1.TableColumnDefinition {
	object, spec := metav1.ObjectMeta{}.SwaggerDoc(), certificatesv1.CertificateSigningRequestSpec{}.SwaggerDoc()
	status := certificatesv1.CertificateSigningRequestStatus{}.SwaggerDoc()
	return []metav1.TableColumnDefinition{
		nameColumn(),
		{Name: "Age", Type: "string", Description: object["creationTimestamp"]},
		{Name: "SignerName", Type: "string", Description: spec["signerName"]},
		{Name: "Requestor", Type: "string", Description: spec["request"]},
		{Name: "RequestedDuration", Type: "string", Description: spec["expirationSeconds"]},
		{Name: "Condition", Type: "string", Description: status["conditions"]},
	}
}

func row(r *csr) []any {
	age, requested := metatable.ConvertToHumanReadableDateType(r.CreationTimestamp), "<none>"
	if s := r.Spec.ExpirationSeconds; s != nil {
		requested = duration.HumanDuration(time.Duration(*s) * time.Second)
	}
	return []any{r.Name, age, r.Spec.SignerName, r.Spec.Username, requested, summary(r)}
}

// summary is the state in a word or two, "Approved,Issued".
func summary(r *csr) string {
	text := "Pending"
	switch {
	case has(r, certificatesv1.CertificateDenied):
		text = "Denied"
	case has(r, certificatesv1.CertificateApproved):
		text = "Approved"
	}
	if has(r, certificatesv1.CertificateFailed) {
		text += ",Failed"
	}
	if len(r.Status.Certificate) > 0 {
		text += ",Issued"
	}
	return text
}

// has tells whether the request has a condition of a type. Those that decide are always true.
func has(r *csr, t certificatesv1.RequestConditionType) bool { return len(conditions(r, t)) > 0 }

func conditions(r *csr, t certificatesv1.RequestConditionType) []certificatesv1.CertificateSigningRequestCondition {
	var found []certificatesv1.CertificateSigningRequestCondition
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			found = append(found, c)
		}
	}
	return found
}
