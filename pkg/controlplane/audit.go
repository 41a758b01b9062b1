package controlplane

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	utilwaitgroup "k8s.io/apimachinery/pkg/util/waitgroup"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// outlet is an audit back end and the policy that selects its events.
type outlet struct {
	backend audit.Backend
	policy  audit.PolicyRuleEvaluator
}

// Audit adds a back end for audit events and the policy that selects them. Of
// several, each gets what its own policy records; managed fields are left out when
// every policy that records a request leaves them out. A back end runs before the
// plane takes a request, and is shut down after its last one.
func (p *Plan) Audit(name string, backend audit.Backend, policy audit.PolicyRuleEvaluator) {
	p.outlets = append(p.outlets, named[outlet]{p.part, name, outlet{backend, policy}})
}

// checkOutlets finds back ends and policies that are missing.
func (p *Plan) checkOutlets() []error {
	errs := duplicates("audit", p.outlets)
	for _, o := range p.outlets {
		if nilValue(o.value.backend) || nilValue(o.value.policy) {
			errs = append(errs, fmt.Errorf("part %q: audit %q: the back end or the policy is nil", o.part, o.name))
		}
	}
	return errs
}

// recorder runs the audit back ends of a plane.
type recorder struct {
	outlets []named[outlet]
	running []audit.Backend
	ended   chan struct{}
	end     sync.Once
	// requests have events to come. One that was cancelled is answered before its
	// handler has ended, and nothing else waits for that.
	requests utilwaitgroup.SafeWaitGroup
}

// startRecorder runs the back ends. After an error none runs.
func startRecorder(outlets []named[outlet]) (*recorder, error) {
	r := &recorder{outlets: outlets, ended: make(chan struct{})}
	for _, o := range outlets {
		if err := o.value.backend.Run(r.ended); err != nil {
			r.stop()
			return nil, fmt.Errorf("part %q: audit %q: %w", o.part, o.name, err)
		}
		r.running = append(r.running, o.value.backend)
	}
	return r, nil
}

// awaited has stop wait for the requests of a handler.
func (r *recorder) awaited(h http.Handler) http.Handler {
	if r == nil || len(r.outlets) == 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.requests.Add(1) == nil {
			defer r.requests.Done()
		}
		h.ServeHTTP(w, req)
	})
}

// lastEventsTimeout is how long handlers of requests that were cancelled may take to
// end, when everything else has.
const lastEventsTimeout = time.Second

// stop makes the back ends deliver the events they hold, and waits.
func (r *recorder) stop() {
	r.end.Do(func() {
		select {
		case <-background(r.requests.Wait):
		case <-time.After(lastEventsTimeout):
		}
		close(r.ended)
		for _, b := range r.running {
			b.Shutdown()
		}
	})
}

// configure makes the handler chain record.
func (r *recorder) configure(c *genericapiserver.Config) {
	switch len(r.outlets) {
	case 0:
		return
	case 1:
		c.AuditBackend, c.AuditPolicyRuleEvaluator = r.outlets[0].value.backend, r.outlets[0].value.policy
		return
	}
	var backends []audit.Backend
	var all policies
	for _, o := range r.outlets {
		backends = append(backends, filtered{o.value.backend, o.value.policy})
		all = append(all, o.value.policy)
	}
	c.AuditBackend, c.AuditPolicyRuleEvaluator = audit.Union(backends...), all
}

// policies record what any one of them records.
type policies []audit.PolicyRuleEvaluator

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (ps policies) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	all := audit.RequestAuditConfig{Level: auditinternal.LevelNone}
	for _, p := range ps {
		one := p.EvaluatePolicyRule(a)
		switch {
		case !auditinternal.LevelNone.Less(one.Level):
			continue
		case all.Level == auditinternal.LevelNone:
			all = one
			continue
		case all.Level.Less(one.Level):
			all.Level = one.Level
		}
		all.OmitManagedFields = all.OmitManagedFields && one.OmitManagedFields
		all.OmitStages = slices.DeleteFunc(slices.Clone(all.OmitStages), func(s auditinternal.Stage) bool {
			return !slices.Contains(one.OmitStages, s)
		})
	}
	return all
}

// filtered passes on only what its own policy records.
type filtered struct {
	audit.Backend
	policy audit.PolicyRuleEvaluator
}

// ProcessEvents implements audit.Sink.
func (f filtered) ProcessEvents(events ...*auditinternal.Event) bool {
	var own []*auditinternal.Event
	for _, e := range events {
		if e = f.reduce(e); e != nil {
			own = append(own, e)
		}
	}
	return len(own) == 0 || f.Backend.ProcessEvents(own...)
}

// reduce is the event at the level of the policy; nil when it is not recorded.
func (f filtered) reduce(e *auditinternal.Event) *auditinternal.Event {
	config := f.policy.EvaluatePolicyRule(attributesOf(e))
	if !auditinternal.LevelNone.Less(config.Level) || slices.Contains(config.OmitStages, e.Stage) {
		return nil
	}
	if !config.Level.Less(e.Level) {
		return e
	}
	reduced := *e
	reduced.Level, reduced.ResponseObject = config.Level, nil
	if config.Level.Less(auditinternal.LevelRequest) {
		reduced.RequestObject = nil
	}
	return &reduced
}

// attributesOf returns the request that policies decided on, read back from its
// event.
func attributesOf(e *auditinternal.Event) authorizer.Attributes {
	a := authorizer.AttributesRecord{Verb: e.Verb}
	if u, err := url.ParseRequestURI(e.RequestURI); err == nil {
		a.Path = u.Path
	}
	if e.User.Username != "" || len(e.User.Groups) > 0 {
		a.User = &user.DefaultInfo{Name: e.User.Username, UID: e.User.UID, Groups: e.User.Groups}
	}
	ref := e.ObjectRef
	if ref == nil {
		return a
	}
	a.ResourceRequest = true
	a.Namespace, a.Name, a.APIGroup, a.APIVersion = ref.Namespace, ref.Name, ref.APIGroup, ref.APIVersion
	a.Resource, a.Subresource = ref.Resource, ref.Subresource
	if e.Verb == "create" && ref.Subresource == "" {
		a.Name = "" // a create names no object: the event learned it later
	}
	return a
}
