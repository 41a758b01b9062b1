package certificates

import (
	"cmp"
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// Signer is the part that signs the approved requests of one signer name with a
// certificate authority. It needs [CertificateSigningRequests]; a plane may
// have several, each with a name of its own.
//
// The certificate has the subject, the alternative names and the key of the
// request and the usages of spec.usages, and nothing else that the request asks
// for. It is never that of an authority: "cert sign" and "crl sign" are
// refused. A request that cannot be signed gets the condition Failed, which says why.
//
// Where the authority is trusted by authn.ClientCA, the common name is a user and the
// organizations are groups. The approver vouches for them, and for the alternative
// names. But whoever may approve for this signer is not to give away every permission:
// names that begin with "system:" are signed only if CommonNames and Organizations list
// them. Certificates of kubernetes.io/kube-apiserver-client are for clients in any case, and
// never name system:masters.
type Signer struct {
	// Name is the signer name whose requests are signed, "example.com/client".
	// The signers of kubelets are not for planes without nodes. Required.
	Name string
	// Certificate and Key are the certificate authority. Nil: they are read from
	// CertificateFile and KeyFile. Required unless CertificateFile is set.
	Certificate *x509.Certificate
	// Key is the private key of Certificate. Required unless KeyFile is set.
	Key crypto.Signer
	// CertificateFile and KeyFile hold the certificate authority in PEM. They are
	// read at the start, where a mistake stops the server, and again for each
	// certificate, so that they may be replaced. Required
	// unless Certificate is set.
	CertificateFile string
	// KeyFile holds the private key of the first certificate in CertificateFile.
	// Required unless Key is set.
	KeyFile string
	// Duration is how long a certificate is valid, and the most that
	// spec.expirationSeconds gets; none outlives the authority. 0: a year.
	Duration time.Duration
	// CommonNames are the common names that are signed: names, or the beginning of names and
	// "*". Those that begin with "system:" need a pattern that begins so. Empty: "*", all
	// that do not begin with "system:".
	CommonNames []string
	// Organizations are the organizations that are signed, with patterns as CommonNames;
	// system:masters needs its whole name. Empty: "*", all that do not begin with "system:".
	Organizations []string
	// Usages are those that are signed. Empty: "client auth", "digital signature" and "key
	// encipherment". A signer for servers lists "server auth".
	Usages []certificatesv1.KeyUsage
	// Approve is called for every undecided request: true approves it, false leaves
	// it to others. It is called for one request at a time, must return soon, and
	// may be called again for the same request. Nil: nothing is approved.
	Approve func(*certificatesv1.CertificateSigningRequest) bool
}

// defaultDuration is that of kube-controller-manager: --cluster-signing-duration.
const defaultDuration = 365 * 24 * time.Hour

// PartName implements the name errors use.
func (s Signer) PartName() string { return fmt.Sprintf("certificates.Signer %q", s.Name) }

// Install declares the work of the signer.
func (s Signer) Install(p *controlplane.Plan) error {
	if err := s.check(); err != nil {
		return err
	}
	s = s.withDefaults()
	p.Need("certificates.CertificateSigningRequests{}", certificatesv1.SchemeGroupVersion.WithKind("CertificateSigningRequest"))
	if s.Certificate == nil {
		p.Work(controlplane.Work{Name: "certificate authority of " + s.Name, Start: func(context.Context, *controlplane.Plane) error {
			_, err := s.authority()
			return err
		}})
	}
	name := "sign-" + strings.ReplaceAll(s.Name, "/", ".")
	p.Work(controlplane.Work{Name: name, Elected: true, Run: func(ctx context.Context, plane *controlplane.Plane) error {
		d := &requestQueue{signer: s, client: plane.Client().CertificatesV1(), queue: retry.NewQueue[string](firstRetry, lastRetry)}
		d.run(ctx)
		return nil
	}})
	return nil
}

// withDefaults has a value in every field that has a default.
func (s Signer) withDefaults() Signer {
	s.Duration = cmp.Or(s.Duration, defaultDuration)
	if len(s.CommonNames) == 0 {
		s.CommonNames = []string{"*"}
	}
	if len(s.Organizations) == 0 {
		s.Organizations = []string{"*"}
	}
	if len(s.Usages) == 0 {
		s.Usages = []certificatesv1.KeyUsage{
			certificatesv1.UsageClientAuth, certificatesv1.UsageDigitalSignature, certificatesv1.UsageKeyEncipherment,
		}
	}
	return s
}

// longestName leaves room for the rest of the name of a Lease.
const longestName = 200

// check returns everything that is wrong with the fields.
func (s Signer) check() error {
	var errs []error
	if err := validateSignerName(s.Name, field.NewPath("Name")).ToAggregate(); err != nil {
		errs = append(errs, fmt.Errorf("field Name: give a domain and a path, such as example.com/client: %w", err))
	}
	if len(s.Name) > longestName {
		errs = append(errs, fmt.Errorf("field Name: it is longer than %d characters", longestName))
	}
	if s.Name == certificatesv1.KubeAPIServerClientKubeletSignerName || s.Name == certificatesv1.KubeletServingSignerName {
		errs = append(errs, fmt.Errorf("field Name: %s is for kubelets: use a name of your own, or %s",
			s.Name, certificatesv1.KubeAPIServerClientSignerName))
	}
	if least := shortest * time.Second; s.Duration != 0 && s.Duration < least {
		errs = append(errs, fmt.Errorf("field Duration: %v is too short: give %v or more, the shortest that a request may ask for",
			s.Duration, least))
	}
	errs = append(errs, check.Patterns("CommonNames", s.CommonNames), check.Patterns("Organizations", s.Organizations), s.checkUsages())
	given, named := s.Certificate != nil || s.Key != nil, s.CertificateFile != "" || s.KeyFile != ""
	switch {
	case given == named || given && (s.Certificate == nil || s.Key == nil) || named && (s.CertificateFile == "" || s.KeyFile == ""):
		errs = append(errs, errors.New("give the certificate authority either as Certificate and Key or as CertificateFile and KeyFile"))
	case given:
		if err := checkAuthority(s.Certificate, s.Key); err != nil {
			errs = append(errs, fmt.Errorf("fields Certificate and Key: %w", err))
		}
	}
	return errors.Join(errs...)
}

// checkUsages returns what is wrong with the usages that are to be signed.
func (s Signer) checkUsages() error {
	known := knownUsages()
	for i, name := range s.Usages {
		if _, ok := known[name]; !ok {
			return fmt.Errorf("field Usages[%d]: %q is no usage of the API: give one such as %q", i, name, certificatesv1.UsageClientAuth)
		}
		if name == certificatesv1.UsageCertSign || name == certificatesv1.UsageCRLSign {
			return fmt.Errorf("field Usages[%d]: %q is for authorities, which are never signed: leave it out", i, name)
		}
	}
	return nil
}
