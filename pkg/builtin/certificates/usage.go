package certificates

import (
	"crypto/x509"

	certificatesv1 "k8s.io/api/certificates/v1"
)

// usage is what a value of spec.usages asks for: a key usage, or an extended one.
type usage struct {
	key      x509.KeyUsage
	extended []x509.ExtKeyUsage
}

func keyUsage(u x509.KeyUsage) usage       { return usage{key: u} }
func extKeyUsage(u x509.ExtKeyUsage) usage { return usage{extended: []x509.ExtKeyUsage{u}} }

// knownUsages are the values that spec.usages may have.
func knownUsages() map[certificatesv1.KeyUsage]usage {
	return map[certificatesv1.KeyUsage]usage{
		certificatesv1.UsageSigning:           keyUsage(x509.KeyUsageDigitalSignature),
		certificatesv1.UsageDigitalSignature:  keyUsage(x509.KeyUsageDigitalSignature),
		certificatesv1.UsageContentCommitment: keyUsage(x509.KeyUsageContentCommitment),
		certificatesv1.UsageKeyEncipherment:   keyUsage(x509.KeyUsageKeyEncipherment),
		certificatesv1.UsageKeyAgreement:      keyUsage(x509.KeyUsageKeyAgreement),
		certificatesv1.UsageDataEncipherment:  keyUsage(x509.KeyUsageDataEncipherment),
		certificatesv1.UsageCertSign:          keyUsage(x509.KeyUsageCertSign),
		certificatesv1.UsageCRLSign:           keyUsage(x509.KeyUsageCRLSign),
		certificatesv1.UsageEncipherOnly:      keyUsage(x509.KeyUsageEncipherOnly),
		certificatesv1.UsageDecipherOnly:      keyUsage(x509.KeyUsageDecipherOnly),
		certificatesv1.UsageAny:               extKeyUsage(x509.ExtKeyUsageAny),
		certificatesv1.UsageServerAuth:        extKeyUsage(x509.ExtKeyUsageServerAuth),
		certificatesv1.UsageClientAuth:        extKeyUsage(x509.ExtKeyUsageClientAuth),
		certificatesv1.UsageCodeSigning:       extKeyUsage(x509.ExtKeyUsageCodeSigning),
		certificatesv1.UsageEmailProtection:   extKeyUsage(x509.ExtKeyUsageEmailProtection),
		certificatesv1.UsageSMIME:             extKeyUsage(x509.ExtKeyUsageEmailProtection),
		certificatesv1.UsageIPsecEndSystem:    extKeyUsage(x509.ExtKeyUsageIPSECEndSystem),
		certificatesv1.UsageIPsecTunnel:       extKeyUsage(x509.ExtKeyUsageIPSECTunnel),
		certificatesv1.UsageIPsecUser:         extKeyUsage(x509.ExtKeyUsageIPSECUser),
		certificatesv1.UsageTimestamping:      extKeyUsage(x509.ExtKeyUsageTimeStamping),
		certificatesv1.UsageOCSPSigning:       extKeyUsage(x509.ExtKeyUsageOCSPSigning),
		certificatesv1.UsageMicrosoftSGC:      extKeyUsage(x509.ExtKeyUsageMicrosoftServerGatedCrypto),
		certificatesv1.UsageNetscapeSGC:       extKeyUsage(x509.ExtKeyUsageNetscapeServerGatedCrypto),
	}
}
