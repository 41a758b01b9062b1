package certificates

import (
	"bytes"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// text is all that is wrong, one to a line, each cut at what was wrong with it.
func text(errs field.ErrorList) string {
	var lines []string
	for _, err := range errs {
		line := err.Field + ": " + string(err.Type)
		if err.Detail != "" && err.Type != field.ErrorTypeNotSupported {
			line += ": " + err.Detail
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestValidateSpec(t *testing.T) {
	t.Parallel()
	forged := newRequest(t, "a", "example.com/client").Spec.Request
	block, _ := pem.Decode(forged)
	block.Bytes[len(block.Bytes)-1] ^= 1
	forged = pem.EncodeToMemory(block)
	cases := map[string]struct {
		reason string
		change func(*certificatesv1.CertificateSigningRequestSpec)
		want   string
	}{
		"good": {reason: "all that is needed is there", change: func(*certificatesv1.CertificateSigningRequestSpec) {}},
		"full": {reason: "the least duration, and a long name", change: func(s *certificatesv1.CertificateSigningRequestSpec) {
			s.ExpirationSeconds = ptr.To[int32](600)
			s.SignerName = "a-1.example.com/name-space.some.name"
		}},
		"noRequest": {
			reason: "there is nothing to sign", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = nil },
			want: "spec.request: FieldValueInvalid: PEM block type must be CERTIFICATE REQUEST",
		},
		"otherBlock": {
			reason: "old tools write another header", change: func(s *certificatesv1.CertificateSigningRequestSpec) {
				s.Request = bytes.ReplaceAll(s.Request, []byte("CERTIFICATE REQUEST"), []byte("NEW CERTIFICATE REQUEST"))
			},
			want: "spec.request: FieldValueInvalid: PEM block type must be CERTIFICATE REQUEST",
		},
		"forged": {
			reason: "the signature proves who has the key", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.Request = forged },
			want: "spec.request: FieldValueInvalid: x509: ECDSA verification failure",
		},
		"noUsages": {
			reason: "v1 wants to know", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.Usages = nil },
			want: "spec.usages: FieldValueRequired: usages must be provided",
		},
		"badUsages": {
			reason: "each counts once, and is known", change: func(s *certificatesv1.CertificateSigningRequestSpec) {
				s.Usages = []certificatesv1.KeyUsage{"any", "flying", "any"}
			},
			want: "spec.usages[1]: FieldValueNotSupported\nspec.usages[2]: FieldValueDuplicate",
		},
		"noSigner": {
			reason: "v1 has no default", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "" },
			want: "spec.signerName: FieldValueRequired: signerName must be provided",
		},
		"unqualified": {
			reason: "a signer has a domain", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "client" },
			want: "spec.signerName: FieldValueInvalid: must be a fully qualified domain and path of the form 'example.com/signer-name'",
		},
		"short domain": {
			reason: "one label is no domain", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.SignerName = "example/client" },
			want: "spec.signerName: FieldValueInvalid: should be a domain with at least two segments separated by dots",
		},
		"soon": {
			reason: "ten minutes are the least", change: func(s *certificatesv1.CertificateSigningRequestSpec) { s.ExpirationSeconds = ptr.To[int32](599) },
			want: "spec.expirationSeconds: FieldValueInvalid: may not specify a duration less than 600 seconds (10 minutes)",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRequest(t, "a", "example.com/client")
			tc.change(&r.Spec)
			if diff := cmp.Diff(tc.want, text(validateSpec(r))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func is(t certificatesv1.RequestConditionType) certificatesv1.CertificateSigningRequestCondition {
	return condition(t, "Test", "")
}

func TestValidateStatus(t *testing.T) {
	t.Parallel()
	type status = certificatesv1.CertificateSigningRequestStatus
	type list = []certificatesv1.CertificateSigningRequestCondition
	with := func(all ...certificatesv1.CertificateSigningRequestCondition) status { return status{Conditions: all} }
	issued := inPEM(newAuthority(t, time.Hour).certificate)
	unsure := is("Denied")
	unsure.Status = corev1.ConditionUnknown
	odd := is("Odd")
	odd.Status = "Perhaps"
	path := "status.conditions"
	cases := map[string]struct {
		reason           string
		old, now         status
		approval, status string // what is wrong with it there
	}{
		"nothing": {reason: "a write may change metadata alone"},
		"approve": {
			reason: "approval approves, status does not", now: with(is("Approved")),
			status: path + `: FieldValueForbidden: updates may not add a condition of type "Approved"`,
		},
		"both": {
			reason: "it is one or the other", old: with(is("Approved")), now: with(is("Approved"), is("Denied")),
			approval: path + "[1].type: FieldValueInvalid: Approved and Denied conditions are mutually exclusive",
			status: path + "[1].type: FieldValueInvalid: Approved and Denied conditions are mutually exclusive\n" +
				path + `: FieldValueForbidden: updates may not add a condition of type "Denied"`,
		},
		"removed": {
			reason: "a decision stays", old: with(is("Denied"), is("Failed")), now: with(is("Denied")),
			approval: path + `: FieldValueForbidden: updates may not remove a condition of type "Failed"`,
			status:   path + `: FieldValueForbidden: updates may not remove a condition of type "Failed"`,
		},
		"others": {reason: "conditions that decide nothing come and go", old: with(is("Odd")), now: with(is("Even"))},
		"unsure": {
			reason: "a decision is true", now: with(unsure),
			approval: path + "[0].status: FieldValueNotSupported",
			status:   path + "[0].status: FieldValueNotSupported\n" + path + `: FieldValueForbidden: updates may not add a condition of type "Denied"`,
		},
		"odd": {
			reason: "a status is one of three, and a type is there", now: with(odd, is("")),
			approval: path + "[0].status: FieldValueNotSupported\n" + path + "[1].type: FieldValueRequired",
			status:   path + "[0].status: FieldValueNotSupported\n" + path + "[1].type: FieldValueRequired",
		},
		"twice": {
			reason: "the list is a map by type", now: status{Conditions: list{is("Odd"), is("Odd")}},
			approval: path + "[1].type: FieldValueDuplicate", status: path + "[1].type: FieldValueDuplicate",
		},
		"issued": {reason: "status issues", old: with(is("Approved")), now: status{Conditions: list{is("Approved")}, Certificate: issued}},
		"kept":   {reason: "what is the same was valid", old: status{Certificate: []byte("x")}, now: status{Certificate: []byte("x")}},
		"replaced": {
			reason: "a certificate stays", old: status{Certificate: issued}, now: status{},
			status: "status.certificate: FieldValueForbidden: updates may not modify existing certificate content",
		},
		"no certificate": {
			reason: "text is not enough", now: status{Certificate: []byte("x")},
			status: "status.certificate: FieldValueInvalid: must contain at least one CERTIFICATE PEM block",
		},
		"a key": {
			reason: "a key has no business there", now: status{Certificate: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY"})},
			status: `status.certificate: FieldValueInvalid: only CERTIFICATE PEM blocks are allowed, found "PRIVATE KEY"`,
		},
		"empty block": {
			reason: "a block has a certificate", now: status{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE"})},
			status: "status.certificate: FieldValueInvalid: found CERTIFICATE PEM block containing 0 certificates",
		},
		"headers": {
			reason: "RFC 7468 has none",
			now:    status{Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}})},
			status: "status.certificate: FieldValueInvalid: no PEM block headers are permitted",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, now := &csr{Status: tc.old}, &csr{Status: tc.now}
			undecided := validateUndecided(now, old)
			got := [2]string{
				text(validateConditions(now, old)),
				text(append(append(validateConditions(now, old), undecided...), validateCertificate(now, old)...)),
			}
			if diff := cmp.Diff([2]string{tc.approval, tc.status}, got); diff != "" {
				t.Errorf("%s: approval and status (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestStamp(t *testing.T) {
	t.Parallel()
	now, before := metav1.Now(), metav1.NewTime(time.Now().Add(-time.Hour))
	old := is("Approved")
	old.LastUpdateTime, old.LastTransitionTime = before, before
	r := &csr{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{is("Approved"), is("Odd")},
	}}
	stamp(r, &csr{Status: certificatesv1.CertificateSigningRequestStatus{
		Conditions: []certificatesv1.CertificateSigningRequestCondition{old},
	}}, now)
	got := [][2]metav1.Time{}
	for _, c := range r.Status.Conditions {
		got = append(got, [2]metav1.Time{c.LastUpdateTime, c.LastTransitionTime})
	}
	if diff := cmp.Diff([][2]metav1.Time{{now, before}, {now, now}}, got); diff != "" {
		t.Errorf("a condition that stays became what it is before (-want +got):\n%s", diff)
	}
}

func TestRow(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		types  []certificatesv1.RequestConditionType
		issued bool
		want   string
	}{
		"new":      {reason: "nobody looked", want: "Pending"},
		"approved": {reason: "the signer is next", types: []certificatesv1.RequestConditionType{"Approved"}, want: "Approved"},
		"issued":   {reason: "it is done", types: []certificatesv1.RequestConditionType{"Approved"}, issued: true, want: "Approved,Issued"},
		"denied":   {reason: "it is over", types: []certificatesv1.RequestConditionType{"Denied"}, want: "Denied"},
		"failed":   {reason: "the signer gave up", types: []certificatesv1.RequestConditionType{"Failed", "Approved"}, want: "Approved,Failed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &csr{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: certificatesv1.CertificateSigningRequestSpec{
				SignerName: "example.com/client", Username: "ann", ExpirationSeconds: ptr.To[int32](3600),
			}}
			for _, c := range tc.types {
				r.Status.Conditions = append(r.Status.Conditions, is(c))
			}
			if tc.issued {
				r.Status.Certificate = []byte("x")
			}
			want := []any{"a", "<unknown>", "example.com/client", "ann", "60m", tc.want}
			if diff := cmp.Diff(want, row(r)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
