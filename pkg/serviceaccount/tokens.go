package serviceaccount

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// Tokens is the part that serves serviceaccounts/token, where tokens are
// requested (kubectl create token), recognises callers by them, and publishes the
// keys, so that others can verify tokens too:
//
//	/.well-known/openid-configuration
//	/openid/v1/jwks
//
// Both paths are subject to authorization: Kubernetes lets the group
// system:serviceaccounts get them.
//
// The account and the object a token is bound to are read from the storage at
// each request, so that a token ends at once with either. It needs
// core.ServiceAccounts, and for bound tokens the parts that serve Pods, Secrets
// or Nodes.
type Tokens struct {
	// KeyFile has the private key in PEM, RSA (RS256, 2048 bits or more) or ECDSA
	// P-256 (ES256), which signs. Further keys in the file, private or public,
	// sign nothing but still verify: to change keys, put the new one first. A
	// change takes effect within seconds; a file that cannot be used is an error of
	// Build, and later changes nothing and is logged. Only its owner and group may have permissions on it.
	// Servers that share a storage need the same keys. Empty: a key in Dir.
	KeyFile string
	// Dir keeps the key when there is no KeyFile: an ECDSA key is made at the
	// first start, in the file service-account.key of mode 0600. Empty: a new key
	// in memory at each start, which ends all older tokens.
	Dir string
	// Issuer says who issued a token: an https URL. Others that verify tokens look
	// for the keys below it. Tokens of other issuers are left to other
	// authenticators. Empty: https://kubernetes.default.svc.cluster.local.
	Issuer string
	// Audiences are those accepted here: a token needs one of them to log in.
	// Tokens requested without any get them all. Empty: Issuer.
	Audiences []string
	// MaxExpiration is the longest a token may last, 10 minutes or more; longer
	// requests are shortened, with a warning. Nothing but the end of the account or of
	// the object it is bound to ends a token before. 2^32 s is the most that may be
	// requested. 0: a day.
	MaxExpiration time.Duration
}

const (
	defaultIssuer = "https://kubernetes.default.svc.cluster.local"
	// Kubernetes has no limit. Whoever may request tokens of an account could keep one for
	// a century.
	defaultMaxExpiration = 24 * time.Hour
)

// PartName implements the name errors use.
func (Tokens) PartName() string { return "serviceaccount.Tokens" }

// Install declares the sub-resource, the authenticator and the published keys.
func (t Tokens) Install(p *controlplane.Plan) error {
	t.Issuer = cmp.Or(t.Issuer, defaultIssuer)
	t.MaxExpiration = cmp.Or(t.MaxExpiration, defaultMaxExpiration)
	if len(t.Audiences) == 0 {
		t.Audiences = []string{t.Issuer}
	}
	if err := t.validate(); err != nil {
		return err
	}
	i := &issuer{Tokens: t}
	p.Read(i.check)
	p.Audiences(t.Audiences...)
	p.Need("core.ServiceAccounts{}", corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	p.Work(controlplane.Work{Name: "service account keys", Start: i.start, Run: i.follow})
	p.Authenticate("service account tokens", union.New(bearertoken.New(i), websocket.NewProtocolAuthenticator(i)))
	p.Serve(api(), controlplane.Resource{
		Name: subresource, Kind: kind().Kind,
		Versions: []string{corev1.SchemeGroupVersion.Version}, Build: i.build,
	})
	p.Handle(configurationPath, i.published(func(k *keyring) (string, any, error) {
		return "application/json", i.configuration(k), nil
	}))
	p.Handle(keysPath, i.published(func(k *keyring) (string, any, error) {
		keys, err := k.set()
		return "application/jwk-set+json", keys, err
	}))
	return nil
}

// validate returns everything that is wrong with the fields.
func (t Tokens) validate() error {
	var errs []error
	if t.KeyFile != "" && t.Dir != "" {
		errs = append(errs, errors.New("fields KeyFile and Dir: set only one: Dir is where a key is made"))
	}
	u, err := url.Parse(t.Issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		errs = append(errs, fmt.Errorf("field Issuer: %q: want an https URL without user, query and fragment", t.Issuer))
	}
	if slices.Contains(t.Audiences, "") {
		errs = append(errs, errors.New("field Audiences: an audience is empty"))
	}
	if t.MaxExpiration != 0 && t.MaxExpiration < shortest {
		errs = append(errs, fmt.Errorf("field MaxExpiration: %v is too short: give %v or more, the shortest that a request may ask for",
			t.MaxExpiration, shortest))
	}
	return errors.Join(errs...)
}

// issuer is the part in one plane.
type issuer struct {
	Tokens
	now atomic.Pointer[running]
}

// running is what an issuer has once its plane has started.
type running struct {
	keys *keyring
	// core serves requests for tokens, and metadata authentication.
	core     corev1client.CoreV1Interface
	metadata func(ctx context.Context, resource schema.GroupResource, namespace, name string) (metav1.Object, error)
}

// start loads the keys, and makes them when there are none.
func (i *issuer) start(_ context.Context, p *controlplane.Plane) error {
	keys, err := i.keys()
	if err != nil {
		return err
	}
	i.now.Store(&running{keys: keys, core: p.Client().CoreV1(), metadata: p.Metadata})
	return nil
}

// file is the path of the keys; empty when they are in memory.
func (i *issuer) file() string {
	if i.KeyFile == "" && i.Dir != "" {
		return filepath.Join(i.Dir, pki.TokenKeyFile)
	}
	return i.KeyFile
}

func (i *issuer) keys() (*keyring, error) {
	switch {
	case i.KeyFile != "":
		return readKeys(i.KeyFile)
	case i.Dir != "":
		return ensureKeys(i.file())
	}
	content, err := pki.NewTokenKey()
	if err != nil {
		return nil, err
	}
	return parseKeys(content)
}
