package certificates

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// ClusterTrustBundles is the part that serves clustertrustbundles
// (certificates.k8s.io/v1): certificates of authorities, in PEM. A bundle may
// belong to a signer; its name then begins with that of the signer,
// "example.com:client:v1" for example.com/client. The part also adds the
// admission plugin ClusterTrustBundleAttest: to write such a bundle, a user needs
// the permission to "attest" for the signer:
//
//	apiGroups: [certificates.k8s.io]
//	resources: [signers]
//	resourceNames: [example.com/client]  # or example.com/* for the domain
//	verbs: [attest]
//
// Nothing in this library trusts a bundle: clients read it.
type ClusterTrustBundles struct{}

// Install adds clustertrustbundles to the group, and the admission plugin.
func (ClusterTrustBundles) Install(p *controlplane.Plan) error {
	if err := shared().Serve(p, bundles()); err != nil {
		return err
	}
	p.Admit("ClusterTrustBundleAttest", &attestation{Handler: admission.NewHandler(admission.Create, admission.Update)})
	return nil
}

type bundle = certificatesv1.ClusterTrustBundle

func bundles() *apis.Definition {
	spec := certificatesv1.ClusterTrustBundleSpec{}.SwaggerDoc()
	return apis.Resource[bundle, certificatesv1.ClusterTrustBundleList]("clustertrustbundles",
		apis.ClusterScoped(),
		apis.NoGeneration(),
		// Which names are valid depends on the signer.
		apis.NameValidation(func(string, bool) []string { return nil }),
		apis.Validate(func(_ context.Context, b *bundle) field.ErrorList { return validateBundle(b) }),
		apis.ValidateUpdate(func(_ context.Context, b, old *bundle) field.ErrorList {
			errs := apivalidation.ValidateImmutableField(b.Spec.SignerName, old.Spec.SignerName, field.NewPath("spec", "signerName"))
			if b.Spec.TrustBundle == old.Spec.TrustBundle {
				return errs
			}
			return append(errs, validateTrust(b)...)
		}),
		apis.ValidateCreate(func(_ context.Context, b *bundle) field.ErrorList { return validateTrust(b) }),
		apis.SelectableFields(map[string]func(*bundle) string{
			"spec.signerName": func(b *bundle) string { return b.Spec.SignerName },
		}),
		apis.Table(func(b *bundle) []any { return []any{b.Name, orNone(b.Spec.SignerName)} },
			nameColumn(), metav1.TableColumnDefinition{Name: "SignerName", Type: "string", Description: spec["signerName"]}),
	)
}

func nameColumn() metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{
		Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"],
	}
}

func orNone(text string) string { return cmp.Or(text, "<none>") }

// validateBundle checks the name and the signer of a bundle.
func validateBundle(b *bundle) field.ErrorList {
	path, signer := field.NewPath("metadata"), b.Spec.SignerName
	var errs field.ErrorList
	if b.GenerateName != "" {
		errs = append(errs, check.Messages(path.Child("generateName"), b.GenerateName, bundleName(b.GenerateName, signer, true))...)
	}
	errs = append(errs, check.Messages(path.Child("name"), b.Name, bundleName(b.Name, signer, false))...)
	if signer == "" {
		return errs
	}
	return append(errs, validateSignerName(signer, field.NewPath("spec", "signerName"))...)
}

// bundleName returns what is wrong with the name of a bundle, or the beginning of one.
func bundleName(name, signer string, beginning bool) []string {
	own := name
	if signer != "" {
		first := strings.ReplaceAll(signer, "/", ":") + ":"
		rest, ok := strings.CutPrefix(name, first)
		if !ok {
			return []string{fmt.Sprintf("ClusterTrustBundle for signerName %s must be named with prefix %s", signer, first)}
		}
		own = rest
	} else if strings.Contains(name, ":") {
		return []string{`ClusterTrustBundle without signer name must not have ":" in its name`}
	}
	return apivalidation.NameIsDNSSubdomain(own, beginning)
}

// longestTrust is how many bytes a bundle may have.
const longestTrust = 1024 * 1024

// validateTrust wants certificates of authorities in PEM, each of them once. Text
// around them is allowed.
func validateTrust(b *bundle) field.ErrorList {
	path := field.NewPath("spec", "trustBundle")
	if len(b.Spec.TrustBundle) > longestTrust {
		return field.ErrorList{field.TooLong(path, "", longestTrust)}
	}
	var errs field.ErrorList
	invalid := func(format string, args ...any) {
		errs = append(errs, field.Invalid(path, "<value omitted>", fmt.Sprintf(format, args...)))
	}
	entries, places, order := 0, map[string][]int{}, []string{}
	for block, rest := pem.Decode([]byte(b.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
		if problem := notAuthority(block); problem != "" {
			invalid("entry %d %s", entries, problem)
		}
		if key := string(block.Bytes); len(places[key]) == 0 {
			order = append(order, key)
		}
		places[string(block.Bytes)] = append(places[string(block.Bytes)], entries)
		entries++
	}
	if len(errs) > 0 {
		return errs
	}
	if entries == 0 {
		invalid("at least one trust anchor must be provided")
	}
	for _, key := range order {
		if len(places[key]) > 1 {
			invalid("duplicate trust anchor (indices %v)", places[key])
		}
	}
	return errs
}

// notAuthority tells why a block is not the certificate of an authority.
func notAuthority(block *pem.Block) string {
	if block.Type != "CERTIFICATE" {
		return "has bad block type: " + block.Type
	}
	if len(block.Headers) > 0 {
		return "has PEM block headers"
	}
	switch certificate, err := x509.ParseCertificate(block.Bytes); {
	case err != nil:
		return "does not parse as X.509"
	case !certificate.IsCA:
		return "does not have the CA bit set"
	case !certificate.BasicConstraintsValid:
		return "has invalid basic constraints"
	}
	return ""
}
