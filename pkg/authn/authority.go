package authn

import (
	"context"
	"crypto/x509"
	"sync/atomic"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// authority is the current certificate authorities of a file. It is empty until a
// plane starts.
type authority struct {
	what, file string
	now        atomic.Pointer[dynamiccertificates.CAContentProvider]
	notifier
}

// An authority can say which client certificates a listener asks for.
var _ dynamiccertificates.CAContentProvider = (*authority)(nil)

// install makes the listener ask for certificates of the authorities, and follows
// the file, which a field of the part names.
func (a *authority) install(p *controlplane.ServerPlan, field string) {
	p.Trust(a.Name(), a)
	followed(p.Root(), field, follow.Source{What: a.what, File: a.file}, a.parse, a.use)
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

func (a *authority) use(_ context.Context, next dynamiccertificates.CAContentProvider) error {
	a.now.Store(&next)
	a.notify()
	return nil
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
