package authn

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"slices"
)

// anchored returns the first certificate of a chain and those that the authorities
// signed, directly or through one another; without a way to an authority it is an
// error. It goes from the authorities down, so that a stranger's certificates cost
// one signature each, and only if they name an authority as their issuer: package x509
// goes up, and tries a hundred signatures by keys that the stranger chose before it
// finds that none of the ways leads anywhere. Whether the chain is valid is not asked.
func anchored(chain, authorities []*x509.Certificate) ([]*x509.Certificate, error) {
	leaf := chain[0]
	if slices.ContainsFunc(authorities, leaf.Equal) {
		return chain[:1], nil
	}
	kept := []*x509.Certificate{leaf}
	pending, signers := slices.Clone(chain[1:]), authorities
	trusted := false
	for len(signers) > 0 {
		trusted = trusted || signedByAny(leaf, signers)
		var next, rest []*x509.Certificate
		for _, c := range pending {
			if signedByAny(c, signers) {
				next = append(next, c)
			} else {
				rest = append(rest, c)
			}
		}
		kept = append(kept, next...)
		pending, signers = rest, next
	}
	if !trusted {
		// Not its subject, which a stranger chooses: errors are kept and logged.
		return nil, fmt.Errorf("no known authority signed the certificate with SHA-256 fingerprint %x", sha256.Sum256(leaf.Raw))
	}
	return kept, nil
}

func signedByAny(c *x509.Certificate, signers []*x509.Certificate) bool {
	return slices.ContainsFunc(signers, func(s *x509.Certificate) bool {
		return bytes.Equal(c.RawIssuer, s.RawSubject) && c.CheckSignatureFrom(s) == nil
	})
}
