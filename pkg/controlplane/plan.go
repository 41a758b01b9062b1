package controlplane

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/sailplane-dev/sailplane/pkg/internal/loopback"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/store"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// Plan is what the parts of one plane declare, and the only thing a part
// writes to. Parts never meet: what one needs of another goes through the plan.
type Plan struct {
	part string

	served          []served
	grouped         []*planned // served, by group
	authenticators  []named[authenticator.Request]
	authorizers     []named[authorizer.UnconditionalAuthorizer]
	audiences       authenticator.Audiences
	admission       []named[admission.Interface]
	guards          []named[WriteGuard]
	middleware      []wrapper
	below, above    []named[LinkFunc]
	work            []named[Work]
	needs           []named[gvk]
	fed, collected  bool
	checks          []healthz.HealthChecker
	dynamic         []DynamicGroups
	aggregated      []func() []AggregatedServer
	counters        []named[AggregatedCounter]
	admitAggregated []named[admission.ValidationInterface]
	countAggregated bool
	patience        time.Duration
	lasting         []apirequest.LongRunningRequestCheck
	outlets         []named[outlet]
	flow            []named[FlowControlFunc]
	filters         []named[listFilter]
	hosts           []named[*loopback.Transport]
	handlers        []named[http.Handler] // by path
	located         []named[string]       // addresses, by Service
	resolvers       []named[ServiceResolver]
	rules           signal.Change  // of the authorizers
	reads           []func() error // of the part that is being installed
	installed       map[Part]bool  // comparable parts; true: another part included it
	including       bool
}

// Write is an object on its way to the storage, after admission.
type Write = store.Put

// WriteGuard may refuse a write: its error is the answer to the client. A write that
// changes nothing, or only tries (dry run), does not come here; one that is tried again after a
// conflict comes several times. The context is that of the request. Otherwise it may
// return a function, which is called when the storage has answered: kept is false
// if the object is surely not stored.
type WriteGuard = store.Guard

// named is something a part declared, with its name in errors.
type named[T any] struct {
	part, name string
	value      T
}

type served struct {
	part      string
	api       *API
	resources []Resource
}

// install installs parts in order, as a part that bundles others does.
func (p *Plan) install(parts []Part) error {
	return p.installEach(parts, func(part Part) error { return part.Install(p) })
}

// Include installs parts that the calling part is useless without. A program may list
// them too: one that is equal to a part of the plane counts once. Its error names the
// parts; return it from Install.
func (p *Plan) Include(parts ...Part) error {
	reads, including := p.reads, p.including
	p.reads, p.including = nil, true
	defer func() { p.reads, p.including = reads, including }()
	return p.install(parts)
}

// counted tells whether the plane has a part already, by itself or by another one.
// A part that a program lists twice is installed twice: what it declares then has
// names that are taken, which the builder says.
func (p *Plan) counted(part Part) bool {
	if !reflect.ValueOf(part).Comparable() {
		return false
	}
	included, found := p.installed[part]
	if found && (included || p.including) {
		return true
	}
	if p.installed == nil {
		p.installed = map[Part]bool{}
	}
	p.installed[part] = p.including
	return false
}

// installEach installs parts in order, and of bundles the parts in them.
func (p *Plan) installEach(parts []Part, install func(Part) error) error {
	outer := p.part
	defer func() { p.part = outer }()
	var errs []error
	for _, part := range parts {
		if bundle, ok := part.(Parts); ok {
			errs = append(errs, p.installEach(bundle, install))
			continue
		}
		if part == nil {
			errs = append(errs, errors.New("a part is nil"))
			continue
		}
		if p.counted(part) {
			continue
		}
		p.part = partName(part)
		if err := install(part); err != nil {
			errs = append(errs, fmt.Errorf("part %q: %w", p.part, err))
		}
		errs = append(errs, p.readAll())
	}
	return errors.Join(errs...)
}

// Read declares a function that runs after Install, in which the part may read
// files: to check them, and to declare what depends on their content, which takes
// the part's place in the order. Its errors are reported like those of Install.
// Build calls it, and the start of a plane once more, so keep what it read in what
// it declares.
func (p *Plan) Read(read func() error) { p.reads = append(p.reads, read) }

// readAll lets the part that was just installed read its files.
func (p *Plan) readAll() error {
	reads := p.reads
	p.reads = nil
	var errs []error
	for _, read := range reads {
		if read == nil {
			errs = append(errs, fmt.Errorf("part %q: Read got a nil function", p.part))
		} else if err := read(); err != nil {
			errs = append(errs, fmt.Errorf("part %q: %w", p.part, err))
		}
	}
	return errors.Join(errs...)
}

// Serve adds resources to an API group. Several parts may add to the same API value.
func (p *Plan) Serve(api *API, resources ...Resource) {
	p.served = append(p.served, served{part: p.part, api: api, resources: resources})
}

// Authenticate adds an authenticator. They are asked in the order of the parts; the
// first that recognises the caller decides. Without any, only the loopback client
// is recognised and everybody else gets 401.
func (p *Plan) Authenticate(name string, a authenticator.Request) {
	p.authenticators = append(p.authenticators, named[authenticator.Request]{p.part, name, a})
}

// Audiences declares the audiences of tokens that log in here, see [BuildConfig.Audiences].
// The audiences of several parts add up. Authenticators that know audiences check
// their own and are given no others.
func (p *Plan) Audiences(audiences ...string) {
	for _, a := range audiences {
		if !slices.Contains(p.audiences, a) {
			p.audiences = append(p.audiences, a)
		}
	}
}

// Authorize adds an authorizer. They are asked in the order of the parts, after the
// rule that group system:masters may do everything; the first that allows or denies
// decides. When none does, the answer is no.
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

// Guard adds a function that is asked before each object is stored, with the size
// that it will have there. Guards are asked in the order of the parts.
func (p *Plan) Guard(name string, g WriteGuard) {
	p.guards = append(p.guards, named[WriteGuard]{p.part, name, g})
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

// Feed asks for [Plane.Feed]. A plane whose parts do not ask has none.
func (p *Plan) Feed() { p.fed = true }

// CollectGarbage promises that the part collects garbage: deletes with
// propagation policy Orphan or Foreground then leave the object, with a
// finalizer that the part must remove. Without it they are as Background.
func (p *Plan) CollectGarbage() { p.collected = true }

// Need makes Build report that no part of the plane serves the kind: add names what
// to add, "core.Namespaces{}".
func (p *Plan) Need(add string, kind schema.GroupVersionKind) {
	p.needs = append(p.needs, named[gvk]{p.part, add, kind})
}

// LongRunning declares requests that may last, beside watches: they have no deadline, take
// no room of those that have one, and end when the plane stops. The function is asked about
// every request, before its caller is known.
func (p *Plan) LongRunning(check apirequest.LongRunningRequestCheck) {
	p.lasting = append(p.lasting, check)
}

// Check adds a health check to /livez, /readyz and /healthz.
func (p *Plan) Check(check healthz.HealthChecker) { p.checks = append(p.checks, check) }

// Dynamic declares groups that come and go while the plane runs.
func (p *Plan) Dynamic(groups DynamicGroups) { p.dynamic = append(p.dynamic, groups) }

// DynamicGroups are groups that come and go while a plane runs, such as those of
// CRDs and of other servers. Parts that list groups find them here.
type DynamicGroups interface {
	// GroupVersions are those served now. It is called after the link that serves them started.
	GroupVersions() []GroupVersion
	// Subscribe has f called after every change, until the plane stops.
	Subscribe(f func()) error
	// Documents is the source of their OpenAPI documents.
	Documents() openapi.Source
}

// GroupVersion is a served group version and how it ranks in discovery, as
// APIService priorities do: higher first.
type GroupVersion struct {
	Group, Version                 string
	GroupPriority, VersionPriority int32
	// Address is the URL at which clients can go to another server directly. Empty: none can.
	Address string
}
