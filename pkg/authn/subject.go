package authn

import (
	"crypto/x509"
	"fmt"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// subjects says who the clients of verified chains are.
type subjects struct {
	// users and groups are patterns of what certificates may say; nil is everything.
	users, groups []string
	revoked       pki.Revocations
}

// User implements x509.UserConversion of k8s.io/apiserver.
func (s subjects) User(chain []*x509.Certificate) (*authenticator.Response, bool, error) {
	for _, c := range chain {
		if s.revoked.Has(c) {
			return nil, false, fmt.Errorf("the certificate with serial number %x was revoked", c.SerialNumber)
		}
	}
	subject := chain[0].Subject
	if s.users != nil && !check.AllowedName(subject.CommonName, s.users) {
		return nil, false, fmt.Errorf(
			"the authority of the certificate may not say that a user is %q: see field Users", subject.CommonName)
	}
	for _, group := range subject.Organization {
		if s.groups != nil && !check.AllowedName(group, s.groups) {
			return nil, false, fmt.Errorf("the certificate's authority may not say that a user is in group %q: see field Groups", group)
		}
	}
	return x509request.CommonNameUserConversion(chain)
}

// clients returns an authenticator that says whom certificates of the authorities belong
// to: those of the patterns, and none that was revoked.
func (a *authority) clients(users, groups []string) authenticator.Request {
	return a.remembered(func(revoked pki.Revocations) authenticator.Request {
		return x509request.NewDynamic(a.VerifyOptions, subjects{users: users, groups: groups, revoked: revoked})
	})
}
