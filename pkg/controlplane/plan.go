package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi"
)

// Plan is what the parts of one plane declare, and the only thing a part
// writes to. Parts never meet: what one needs of another goes through the plan.
type Plan struct {
	part string

	served         []served
	grouped        []*planned // served, by group
	authenticators []named[authenticator.Request]
	authorizers    []named[authorizer.UnconditionalAuthorizer]
	audiences      authenticator.Audiences
	admission      []named[admission.Interface]
	middleware     []wrapper
	below, above   []named[LinkFunc]
	prepares       []named[WorkFunc]
	background     []named[WorkFunc]
	elected        []named[WorkFunc]
	needs          []named[gvk]
	fed, collected bool
	onDemand       bool
	checks         []healthz.HealthChecker
	dynamic        []DynamicGroups
	identity       []named[IdentityFunc]
	ready          []named[ReadyFunc]
	trusted        []named[dynamiccertificates.CAContentProvider]
	certificates   []named[CertificateFunc]
	tracers        []named[TracerFunc]
	outlets        []named[outlet]
	flow           []named[FlowControlFunc]
	transforms     []named[TransformFunc]
	filters        []named[listFilter]
	answers        []named[*answer]
}

// named is something a part declared, with what errors call it.
type named[T any] struct {
	part, name string
	value      T
}

type served struct {
	part      string
	api       *API
	resources []Resource
}

// WorkFunc is work of a part in a running plane.
type WorkFunc func(ctx context.Context, p *Plane) error

// IdentityFunc gives a server its TLS identity for the address it listens on.
type IdentityFunc func(ctx context.Context, addr net.Addr) (Identity, error)

// CertificateFunc gives a server a serving certificate for some names. It is
// called before the server listens; whoever changes it later tells its listeners.
type CertificateFunc func(ctx context.Context) (dynamiccertificates.SNICertKeyContentProvider, error)

// ReadyFunc is called once when a server is ready, before Ready is signalled.
type ReadyFunc func(ctx context.Context, addr net.Addr) error

// Identity is how a server proves itself and recognises client certificates.
type Identity struct {
	// Serving is the certificate and key the server answers with, unless a
	// certificate was added (see [Plan.Certify]) for the name a client asks for.
	Serving dynamiccertificates.CertKeyContentProvider
	// ClientCA signs the client certificates that are asked for. May be nil.
	ClientCA dynamiccertificates.CAContentProvider
}

// Install installs parts in order, as a part that bundles others does.
func (p *Plan) install(parts []Part) error {
	outer := p.part
	defer func() { p.part = outer }()
	var errs []error
	for _, part := range parts {
		if bundle, ok := part.(Parts); ok {
			errs = append(errs, p.install(bundle))
			continue
		}
		if part == nil {
			errs = append(errs, errors.New("a part is nil"))
			continue
		}
		p.part = partName(part)
		if err := part.Install(p); err != nil {
			errs = append(errs, fmt.Errorf("part %q: %w", p.part, err))
		}
	}
	return errors.Join(errs...)
}

// Serve adds resources to an API group. Several parts may add to the same API value.
func (p *Plan) Serve(api *API, resources ...Resource) {
	p.served = append(p.served, served{part: p.part, api: api, resources: resources})
}

// Authenticate adds an authenticator. They are asked in the order of the parts;
// the first that recognises the caller decides. None: only the loopback client
// is recognised and everybody else is 401.
func (p *Plan) Authenticate(name string, a authenticator.Request) {
	p.authenticators = append(p.authenticators, named[authenticator.Request]{p.part, name, a})
}

// Audiences says for whom tokens are that log in here, see [Env.Audiences]. What
// several parts say is taken together. Authenticators that know audiences check
// their own: none is given those of another.
func (p *Plan) Audiences(audiences ...string) {
	for _, a := range audiences {
		if !slices.Contains(p.audiences, a) {
			p.audiences = append(p.audiences, a)
		}
	}
}

// Authorize adds an authorizer. They are asked in the order of the parts, after
// the rule that group system:masters may do everything; the first that allows
// or denies decides, and nobody's opinion is no.
func (p *Plan) Authorize(name string, a authorizer.UnconditionalAuthorizer) {
	p.authorizers = append(p.authorizers, named[authorizer.UnconditionalAuthorizer]{p.part, name, a})
}

// Admit adds an admission plugin: an admission.MutationInterface, a
// ValidationInterface, or both. All mutate in the order of the parts, then all
// validate in that order. Plugins are initialised as kube-apiserver's are
// (k8s.io/apiserver/pkg/admission/initializer).
func (p *Plan) Admit(name string, plugin admission.Interface) {
	p.admission = append(p.admission, named[admission.Interface]{p.part, name, plugin})
}

// Wrap puts middleware into a slot of the handler chain. In a slot, the first
// declared is the outermost.
func (p *Plan) Wrap(slot Slot, name string, wrap func(http.Handler) http.Handler) {
	p.middleware = append(p.middleware, wrapper{part: p.part, slot: slot, name: name, wrap: wrap})
}

// Below puts a server under the API groups: requests that no group answers reach it.
func (p *Plan) Below(name string, link LinkFunc) {
	p.below = append(p.below, named[LinkFunc]{p.part, name, link})
}

// Above puts a server over the API groups: it sees every request first.
func (p *Plan) Above(name string, link LinkFunc) {
	p.above = append(p.above, named[LinkFunc]{p.part, name, link})
}

// Prepare adds work that is done before a plane is ready, in the order of the
// parts. The plane serves its own loopback client by then. An error stops the server.
func (p *Plan) Prepare(name string, work WorkFunc) {
	p.prepares = append(p.prepares, named[WorkFunc]{p.part, name, work})
}

// Background adds work that runs from the start of a plane until its context
// ends. A plane waits for it when it stops. An error stops the server.
func (p *Plan) Background(name string, work WorkFunc) {
	p.background = append(p.background, named[WorkFunc]{p.part, name, work})
}

// Elect adds background work that one server at a time does, where several
// share a storage (see [Traits]): the one that holds a Lease in
// kube-system. Another one takes over within 15 s. Where the storage is not
// shared it is plain background work.
func (p *Plan) Elect(name string, work WorkFunc) {
	p.elected = append(p.elected, named[WorkFunc]{p.part, name, work})
}

// Feed asks for [Plane.Feed]. A plane whose parts do not ask has none.
func (p *Plan) Feed() { p.fed = true }

// CollectGarbage promises that the part collects garbage: deletes with
// propagation policy Orphan or Foreground then leave the object, with a
// finalizer that the part must remove. Without it they are as Background.
func (p *Plan) CollectGarbage() { p.collected = true }

// Need has Build report when no part of the plane serves the kind: name what to
// add, "core.Namespaces{}".
func (p *Plan) Need(add string, kind schema.GroupVersionKind) {
	p.needs = append(p.needs, named[gvk]{p.part, add, kind})
}

// Check adds a health check to /livez, /readyz and /healthz.
func (p *Plan) Check(check healthz.HealthChecker) { p.checks = append(p.checks, check) }

// Dynamic declares groups that come and go while the plane runs.
func (p *Plan) Dynamic(groups DynamicGroups) { p.dynamic = append(p.dynamic, groups) }

// Identify declares where a server's TLS identity comes from. One part may.
func (p *Plan) Identify(name string, identity IdentityFunc) {
	p.identity = append(p.identity, named[IdentityFunc]{p.part, name, identity})
}

// Certify adds a serving certificate for the names that clients ask for with
// it (SNI, RFC 6066, section 3). Other clients get that of the identity, or
// without one, the first that was added.
func (p *Plan) Certify(name string, certificate CertificateFunc) {
	p.certificates = append(p.certificates, named[CertificateFunc]{p.part, name, certificate})
}

// Trust has the listener ask clients for certificates of further authorities,
// beside those of the identity. There may be none at first; who declares them
// tells the listeners of the provider when they change. What a certificate is
// good for is up to the authenticators.
func (p *Plan) Trust(name string, ca dynamiccertificates.CAContentProvider) {
	p.trusted = append(p.trusted, named[dynamiccertificates.CAContentProvider]{p.part, name, ca})
}

// WhenReady adds work done when the server is ready and its address is known,
// such as writing a kubeconfig.
func (p *Plan) WhenReady(name string, f ReadyFunc) {
	p.ready = append(p.ready, named[ReadyFunc]{p.part, name, f})
}

// DynamicGroups are groups that come and go while a plane runs, such as those
// of CRDs. It is how a part that serves them meets the parts that list them.
type DynamicGroups interface {
	// GroupVersions are those served now. It is called after the link that serves them started.
	GroupVersions() []GroupVersion
	// Subscribe has f called after every change, until the plane stops.
	Subscribe(f func()) error
	// Documents is the source of their OpenAPI documents.
	Documents() OpenAPISource
}

// OpenAPISource lists OpenAPI documents, which are built when a client asks
// for them.
type OpenAPISource = openapi.Source

// OpenAPIDocument is one OpenAPI v3 document of an OpenAPISource.
type OpenAPIDocument = openapi.Document

// OpenAPISwagger is what an OpenAPISource adds to the OpenAPI v2 document.
type OpenAPISwagger = openapi.Swagger

// GroupVersion is a served group version and how it ranks in discovery, as
// APIService priorities do: higher first.
type GroupVersion struct {
	Group, Version                 string
	GroupPriority, VersionPriority int32
}
