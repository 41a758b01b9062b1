package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"

	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// ServerPart is a part of a server: it brings what all planes of the server share,
// such as the listener's identity. A builder calls InstallServer in place of
// Install. Install returns [ErrServerOnly]: the part is for no other plane.
type ServerPart interface {
	Part
	InstallServer(*ServerPlan) error
}

// ErrServerOnly is the error of a server's part that was given to a further plane.
var ErrServerOnly = errors.New("only a server can have this part: pass it to the builder, not to Plane")

// ServerPartFunc makes a function a ServerPart. Nil is an error of Build. Required.
type ServerPartFunc func(*ServerPlan) error

// Install implements Part.
func (ServerPartFunc) Install(*Plan) error { return ErrServerOnly }

// InstallServer calls the function.
func (f ServerPartFunc) InstallServer(p *ServerPlan) error {
	if f == nil {
		return errNoFunc
	}
	return f(p)
}

// ServerPlan is what the parts of a server declare, for the server and for its root
// plane.
type ServerPlan struct {
	root         *Plan
	everywhere   []named[func(*Plan)]
	identity     []named[IdentityFunc]
	certificates []named[CertificateFunc]
	trusted      []named[dynamiccertificates.CAContentProvider]
	transforms   []named[TransformFunc]
	shared       []named[ShareFunc]
	tracers      []named[TracerFunc]
	work         []named[Work]
	large        []func(bool)
	connections  []named[TakeFunc]
	elsewhere    []named[ElsewhereFunc]
}

// IdentityFunc gives a server its TLS identity for the address it listens on.
type IdentityFunc func(ctx context.Context, addr net.Addr) (Identity, error)

// CertificateFunc gives a server a serving certificate for some names. It is called
// before the server listens; a provider whose certificate changes later tells its
// listeners.
type CertificateFunc func(ctx context.Context) (dynamiccertificates.SNICertKeyContentProvider, error)

// Identity is how a server proves itself and recognises client certificates.
type Identity struct {
	// Serving is the certificate and key the server answers with, unless a
	// certificate was added (see [ServerPlan.Certify]) for the name a client asks for.
	Serving dynamiccertificates.CertKeyContentProvider
	// ClientCA signs the client certificates that are asked for. May be nil.
	ClientCA dynamiccertificates.CAContentProvider
	// ServingCA signed Serving: see [Server.Authority]. May be nil.
	ServingCA dynamiccertificates.CAContentProvider
}

func newServerPlan() *ServerPlan { return &ServerPlan{root: &Plan{}} }

// install installs parts in order: the server's own, and others in the root plane.
func (p *ServerPlan) install(parts []Part) error {
	return p.root.installEach(parts, func(part Part) error {
		if s, ok := part.(ServerPart); ok {
			return s.InstallServer(p)
		}
		return part.Install(p.root)
	})
}

// further is the plan of a further plane, with what the server's parts bring to each.
func (p *ServerPlan) further(parts []Part) (*Plan, error) {
	plan := &Plan{}
	var errs []error
	for _, e := range p.everywhere {
		plan.part = e.part
		e.value(plan)
		errs = append(errs, plan.readAll())
	}
	return plan, errors.Join(append(errs, plan.install(parts))...)
}

// EachPlane has declare called for every plane of the server, including the root
// plane: what it declares comes before the parts of a further plane.
func (p *ServerPlan) EachPlane(declare func(*Plan)) {
	p.everywhere = append(p.everywhere, named[func(*Plan)]{part: p.root.part, value: declare})
	declare(p.root)
}

// Root is the plan of the root plane, which lives as long as the server.
func (p *ServerPlan) Root() *Plan { return p.root }

// Identify declares where a server's TLS identity comes from. At most one part may
// call it.
func (p *ServerPlan) Identify(name string, identity IdentityFunc) {
	p.identity = append(p.identity, named[IdentityFunc]{p.root.part, name, identity})
}

// Certify adds a serving certificate for the names that clients ask for with
// it (SNI, RFC 6066, section 3). Other clients get that of the identity, or
// without one, the first that was added.
func (p *ServerPlan) Certify(name string, certificate CertificateFunc) {
	p.certificates = append(p.certificates, named[CertificateFunc]{p.root.part, name, certificate})
}

// Trust has the listener ask clients for certificates of further authorities,
// beside those of the identity. There may be none at first; the provider tells its
// listeners when they change. Its method RunOnce, if it has one as those of upstream
// (dynamiccertificates.ControllerRunner), is called before anything is served: a client
// that is not asked for its certificate is nobody for as long as its connection lasts.
// The authenticators decide what a certificate is good for.
func (p *ServerPlan) Trust(name string, ca dynamiccertificates.CAContentProvider) {
	p.trusted = append(p.trusted, named[dynamiccertificates.CAContentProvider]{p.root.part, name, ca})
}

// Transform declares a transformation between the served objects and the storage,
// such as encryption. At most one part may call it. It starts before anything is
// read from the storage.
func (p *ServerPlan) Transform(name string, start TransformFunc) {
	p.transforms = append(p.transforms, named[TransformFunc]{p.root.part, name, start})
}

// Share has a function called when the storage is open, before the identity: servers
// on a storage have in common what it keeps there.
func (p *ServerPlan) Share(name string, share ShareFunc) {
	p.shared = append(p.shared, named[ShareFunc]{p.root.part, name, share})
}

// Trace records requests, and what they cause, as spans. At most one part may call
// it.
func (p *ServerPlan) Trace(name string, tracer TracerFunc) {
	p.tracers = append(p.tracers, named[TracerFunc]{p.root.part, name, tracer})
}

// LargeRequests has a function called when there is a large request (see
// [Limits.LargeRequests]) after there was none, and when there is none any more. It must
// not block. Nobody is told when nothing limits large requests.
func (p *ServerPlan) LargeRequests(tell func(computing bool)) { p.large = append(p.large, tell) }

// Work declares work that gets the root plane and begins when that is ready. The
// server is ready when each Start has returned.
func (p *ServerPlan) Work(w Work) {
	p.work = append(p.work, named[Work]{p.root.part, w.Name, w})
}

// check returns everything that is wrong with what the parts declared.
func (p *ServerPlan) check(storage Storage) error {
	errs := []error{p.root.check(storage)}
	errs = append(errs, duplicates("serving certificate", p.identity)...)
	errs = append(errs, duplicates("serving certificate", p.certificates)...)
	errs = append(errs, duplicates("authority", p.trusted)...)
	errs = append(errs, checkWork("work of the server", p.work)...)
	errs = append(errs, checkConnections(p.connections)...)
	errs = append(errs, single("serving certificate", p.identity), single("tracer", p.tracers),
		single("transformation of stored values", p.transforms))
	return errors.Join(errs...)
}

// single finds a second declaration where a plan may have one.
func single[T any](what string, declared []named[T]) error {
	if len(declared) < 2 {
		return nil
	}
	return fmt.Errorf("part %q: %s: part %q already provides one: remove one of them", declared[1].part, what, declared[0].part)
}
