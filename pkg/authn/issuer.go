package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	authncel "k8s.io/apiserver/pkg/authentication/cel"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// issuersAnswer is how long a server waits for issuers before it is ready
	// without them, or keeps its old configuration.
	issuersAnswer = 5 * time.Second
	// issuersRetire is how long replaced issuers still serve requests that use them.
	issuersRetire = time.Minute
)

// issuers are those of the configuration in use.
type issuers struct {
	current[*issuerSet]
}

// issuerSet are the issuers of one configuration.
type issuerSet struct {
	authenticator.Token
	asked []oidc.AuthenticatorTokenWithHealthCheck
	end   context.CancelFunc
}

// replace puts a valid configuration into effect: the first one in any case,
// later ones when their issuers answer. They run until they are replaced or life ends.
func (i *issuers) replace(life context.Context, config *apiserver.AuthenticationConfiguration) error {
	next, err := newIssuerSet(life, config)
	if err != nil {
		return err
	}
	silent := next.await(life)
	if i.Load() == nil {
		if silent != nil {
			klog.FromContext(life).Error(silent, "A token issuer does not answer: its tokens are refused until it does")
		}
		i.Store(&next)
		return nil
	}
	if silent != nil {
		next.end()
		return silent
	}
	old := *i.Swap(&next)
	time.AfterFunc(issuersRetire, old.end)
	return nil
}

// newIssuerSet starts to ask the issuers for their keys.
func newIssuerSet(life context.Context, config *apiserver.AuthenticationConfiguration) (*issuerSet, error) {
	compiler := authncel.NewDefaultCompiler() // costly, so one for all issuers
	ctx, end := context.WithCancel(life)
	set := &issuerSet{end: end}
	var tokens []authenticator.Token
	for _, a := range config.JWT {
		client, err := issuerClient(ctx, a.Issuer.CertificateAuthority)
		if err != nil {
			end()
			return nil, err
		}
		issuer, err := oidc.New(ctx, oidc.Options{
			JWTAuthenticator: a, Client: client, Compiler: compiler, SupportedSigningAlgs: oidc.AllValidSigningAlgorithms(),
		})
		if err != nil {
			end()
			return nil, err
		}
		set.asked = append(set.asked, issuer)
		tokens = append(tokens, issuer)
	}
	set.Token = tokenunion.NewFailOnError(tokens...)
	return set, nil
}

// issuerClient reaches an issuer whose certificate the given authorities signed,
// or without any, those of the machine. Its connections end with the context.
func issuerClient(ctx context.Context, authorities string) (*http.Client, error) {
	var roots *x509.CertPool
	if authorities != "" {
		var err error
		if roots, err = cert.NewPoolFromBytes([]byte(authorities)); err != nil {
			return nil, err
		}
	}
	transport := utilnet.SetTransportDefaults(&http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
	})
	context.AfterFunc(ctx, transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, nil
}

// await waits a while for all issuers to answer, and returns the errors of those
// that do not.
func (s *issuerSet) await(ctx context.Context) error {
	const every = 20 * time.Millisecond
	var silent error
	err := wait.PollUntilContextTimeout(ctx, every, issuersAnswer, true, func(context.Context) (bool, error) {
		var errs []error
		for _, a := range s.asked {
			errs = append(errs, a.HealthCheck())
		}
		silent = errors.Join(errs...)
		return silent == nil, nil
	})
	if silent != nil {
		return silent
	}
	return err // life ended
}
