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
// the file.
func (a *authority) install(p *controlplane.ServerPlan) {
	p.Trust(a.Name(), a)
	p.Root().Work(followWork(&follow.File{Source: follow.Source{What: a.what, File: a.file, Use: a.use}}))
}

// followWork is the work that puts a file and its changes into effect.
func followWork(f *follow.File) controlplane.Work {
	return controlplane.Work{
		Name:  f.Name(),
		Start: func(ctx context.Context, _ *controlplane.Plane) error { return f.Begin(ctx) },
		Run:   func(ctx context.Context, _ *controlplane.Plane) error { return f.Run(ctx) },
	}
}

func (a *authority) use(_ context.Context, content []byte) error {
	next, err := dynamiccertificates.NewStaticCAContent(a.Name(), content)
	if err != nil {
		return err
	}
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
