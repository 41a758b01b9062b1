package authn

import (
	"context"
	"crypto/x509"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// authority is the current certificate authorities of a file. It is empty until a
// server starts.
type authority struct {
	what, file string
	now        atomic.Pointer[dynamiccertificates.CAContentProvider]
	revoked    atomic.Pointer[pki.Revocations]
	files      []*follow.File // with the authorities and what they revoked, in this order
	pki.Listeners

	changes sync.Mutex
	lists   []*x509.RevocationList
}

// remembered remembers what an authenticator says of the certificates of the
// authorities. Answers end with the authorities and the revocations they are based on.
func (a *authority) remembered(asked func(pki.Revocations) authenticator.Request) authenticator.Request {
	var known atomic.Pointer[verified]
	forget := func() {
		// Contents were checked when they came into effect. Without any there are no certificates.
		certs := a.certificates()
		var revoked pki.Revocations
		if now := a.revoked.Load(); now != nil {
			revoked = *now
		}
		known.Store(remember(asked(revoked), certs))
	}
	forget()
	a.AddListener(listener(forget))
	return authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		return known.Load().AuthenticateRequest(req)
	})
}

// An authority can say which client certificates a listener asks for.
var _ dynamiccertificates.CAContentProvider = (*authority)(nil)

// install makes the listener ask for certificates of the authorities, and follows
// the file, which a field of the part names.
func (a *authority) install(p *controlplane.ServerPlan, field string) {
	p.Trust(a.Name(), a)
	a.files = append(a.files, followed(p.Root(), field, follow.Source{What: a.what, File: a.file}, a.parse, a.use))
}

// RunOnce has whom the files name be known from the first connection on. See
// [controlplane.ServerPlan.Trust].
func (a *authority) RunOnce(ctx context.Context) error {
	for _, f := range a.files {
		if err := f.Begin(ctx); err != nil {
			return err
		}
	}
	return nil
}

// followed has Build check the file of a field, and the plane put it and its changes
// into effect: use gets what parse makes of the content.
func followed[T any](
	p *controlplane.Plan, field string, s follow.Source, parse func(content []byte) (T, error), use func(context.Context, T) error,
) *follow.File {
	s.Use = func(ctx context.Context, content []byte) error {
		parsed, err := parse(content)
		if err != nil {
			return err
		}
		return use(ctx, parsed)
	}
	f := &follow.File{Source: s}
	p.Read(func() error {
		_, err := follow.Parse(field, s, parse)
		return err
	})
	p.Work(controlplane.Work{
		Name:  f.Name(),
		Start: func(ctx context.Context, _ *controlplane.Plane) error { return f.Begin(ctx) },
		Run:   func(ctx context.Context, _ *controlplane.Plane) error { return f.Run(ctx) },
	})
	return f
}

func (a *authority) parse(content []byte) (dynamiccertificates.CAContentProvider, error) {
	return dynamiccertificates.NewStaticCAContent(a.Name(), content)
}

// certificates are those of the authorities, none before there is content.
func (a *authority) certificates() []*x509.Certificate {
	certs, _ := certutil.ParseCertsPEM(a.CurrentCABundleContent())
	return certs
}

// revoke puts revocation lists into effect.
func (a *authority) revoke(ctx context.Context, lists []*x509.RevocationList) error {
	a.changes.Lock()
	defer a.changes.Unlock()
	if _, err := pki.RevokedBy(lists, a.certificates()); err != nil {
		return err
	}
	a.lists = lists
	a.changed(ctx)
	return nil
}

func (a *authority) use(ctx context.Context, next dynamiccertificates.CAContentProvider) error {
	a.changes.Lock()
	defer a.changes.Unlock()
	a.now.Store(&next)
	a.changed(ctx)
	return nil
}

// changed puts what the lists revoke of the authorities into effect. A list that does not fit
// an authority any more, such as one that has the same name and another key, revokes
// nothing, and takes nothing from the others.
func (a *authority) changed(ctx context.Context) {
	certs, all := a.certificates(), pki.Revocations{}
	for _, list := range a.lists {
		revoked, err := pki.RevokedBy([]*x509.RevocationList{list}, certs)
		if err != nil {
			klog.FromContext(ctx).Error(err, "A revocation list has no effect: its authority did not sign it", "authorities", a.Name())
		}
		maps.Copy(all, revoked)
	}
	a.revoked.Store(&all)
	a.Notify()
}

// Name implements dynamiccertificates.CAContentProvider.
func (a *authority) Name() string { return a.what + " " + a.file }

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (a *authority) CurrentCABundleContent() []byte {
	if now := a.now.Load(); now != nil {
		return (*now).CurrentCABundleContent()
	}
	return nil
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (a *authority) VerifyOptions() (x509.VerifyOptions, bool) {
	if now := a.now.Load(); now != nil {
		return (*now).VerifyOptions()
	}
	return x509.VerifyOptions{}, false
}
