// Package verify tells whether an API server keeps the conventions of Kubernetes APIs
// (https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md)
// that clients rely on: discovery and OpenAPI that say what is served, versions that a watch can
// begin at, preconditions, dry runs, pages, errors that programs understand.
//
// [Run] asks a running server, whoever made it. In a test:
//
//	report, err := verify.Run(t.Context(), verify.Options{Config: config})
//	if err != nil {
//		t.Fatal(err)
//	}
//	for _, r := range report.Failed() {
//		t.Error(r)
//	}
//
// It writes only into namespaces of its own, which it deletes.
package verify

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Options say what to verify.
type Options struct {
	// Config is how to reach the server, with all rights. Required.
	Config *rest.Config
	// Groups are the groups, or group versions as "GROUP/VERSION", whose resources are
	// verified; "core" is the one without a name. Empty: all.
	Groups []string
	// Only are the IDs of the checks to make. Empty: all.
	Only []string
	// Samples are objects to create, by kind: of each, the content without a name. One may do for
	// several versions of its kind. There are some for the kinds of Kubernetes; of other kinds
	// without one, an object with nothing but metadata is tried. Empty: none.
	Samples []*unstructured.Unstructured
	// Timeout is how long each check may take. Empty: 30 seconds.
	Timeout time.Duration
	// Progress is called with each result, in the order of the report. Nil: nobody is told.
	Progress func(Result)
}

// Outcome is how a check ended.
type Outcome string

// The outcomes.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // it does not apply, or what it needs is not there
)

// Result is what came of a check.
type Result struct {
	// ID names the check: "watch-from-version". It never changes.
	ID string `json:"id"`
	// Title says what has to hold.
	Title string `json:"title"`
	// Resource is what it was about, "configmaps" or "flunders.v1.wardle.example.com"; empty for
	// the server.
	Resource string  `json:"resource,omitempty"`
	Outcome  Outcome `json:"outcome"`
	// Sent, Got and Want are the request, the answer and what it should have been, of a check
	// that failed. Got is why, for one that was skipped.
	Sent string `json:"sent,omitempty"`
	Got  string `json:"got,omitempty"`
	Want string `json:"want,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// String is the result in a line or a few.
func (r Result) String() string {
	name := r.ID
	if r.Resource != "" {
		name += " of " + r.Resource
	}
	switch r.Outcome {
	case Failed:
		return fmt.Sprintf("%s: %s\n  sent: %s\n  got:  %s\n  want: %s", name, r.Title, r.Sent, r.Got, r.Want)
	case Skipped:
		return fmt.Sprintf("%s: skipped: %s", name, r.Got)
	}
	return name + ": passed"
}

// Report has the results of all checks.
type Report struct {
	Server  string    `json:"server"`
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	Results []Result  `json:"results"`
}

// Failed are the results of checks that failed.
func (r *Report) Failed() []Result {
	return slices.DeleteFunc(slices.Clone(r.Results), func(one Result) bool { return one.Outcome != Failed })
}

// Count is how many results have an outcome.
func (r *Report) Count(o Outcome) int {
	n := 0
	for _, one := range r.Results {
		if one.Outcome == o {
			n++
		}
	}
	return n
}

// Check is a check of this package.
type Check struct {
	// ID names it in results.
	ID string
	// Title says what has to hold.
	Title string
	// OfResource says that it is about each resource, and not once about the server.
	OfResource bool
}

// Checks are all of them, in order.
func Checks() []Check {
	var all []Check
	for _, c := range serverChecks() {
		all = append(all, Check{ID: c.id, Title: c.title})
	}
	for _, c := range resourceChecks() {
		all = append(all, Check{ID: c.id, Title: c.title, OfResource: true})
	}
	return all
}

// defaultTimeout is that of a check.
const defaultTimeout = 30 * time.Second

// Run verifies a server. The error says why it could not: the server is not there, or nobody may
// do anything. What is wrong with the server is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Config == nil {
		return nil, errors.New("field Config: is nil: say how to reach the server")
	}
	for _, id := range o.Only {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.ID == id }) {
			return nil, fmt.Errorf("field Only: there is no check %q", id)
		}
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	s, err := connect(ctx, o)
	if err != nil {
		return nil, err
	}
	r := &Report{Server: s.base.String(), Begun: time.Now()}
	note := func(one Result) {
		r.Results = append(r.Results, one)
		if o.Progress != nil {
			o.Progress(one)
		}
	}
	made := func(id string) bool { return len(o.Only) == 0 || slices.Contains(o.Only, id) }
	for _, c := range serverChecks() {
		if !made(c.id) {
			continue
		}
		note(try(ctx, o.Timeout, Result{ID: c.id, Title: c.title}, func(ctx context.Context) error { return c.check(ctx, s) }))
	}
	end, err := s.enter(ctx)
	if err != nil {
		return r, err
	}
	checks := slices.DeleteFunc(resourceChecks(), func(c resourceCheck) bool { return !made(c.id) })
	for _, results := range s.each(ctx, checks) {
		for one := range results {
			note(one)
		}
	}
	r.Seconds = time.Since(r.Begun).Seconds()
	return r, errors.Join(ctx.Err(), end(context.WithoutCancel(ctx)))
}

// atOnce is how many resources are verified at a time: some checks wait for the server, not for
// its processor.
const atOnce = 16

// each makes the checks of all resources, a few at a time. There is a channel for each, in order.
func (s *server) each(ctx context.Context, checks []resourceCheck) []chan Result {
	free := make(chan struct{}, atOnce)
	all := make([]chan Result, len(s.resources))
	for i := range all {
		all[i] = make(chan Result, len(checks)) // nobody waits for who reads
	}
	go func() {
		for i, res := range s.resources {
			free <- struct{}{}
			go func() {
				defer func() { close(all[i]); <-free }()
				res.find(ctx)
				for _, c := range checks {
					all[i] <- try(ctx, s.Timeout, Result{ID: c.id, Title: c.title, Resource: res.name()},
						func(ctx context.Context) error { return c.check(ctx, res) })
				}
			}()
		}
	}()
	return all
}

// try makes a check, and says what came of it.
func try(ctx context.Context, timeout time.Duration, r Result, check func(context.Context) error) Result {
	r.Outcome = Passed
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := check(ctx)
	r.Seconds = time.Since(begun).Seconds()
	var skipped skip
	var wrong *mismatch
	switch {
	case err == nil:
	case errors.As(err, &skipped):
		r.Outcome, r.Got = Skipped, skipped.Error()
	case errors.As(err, &wrong):
		r.Outcome, r.Sent, r.Got, r.Want = Failed, wrong.sent, wrong.got, wrong.want
	default:
		r.Outcome, r.Got, r.Want = Failed, err.Error(), "an answer"
	}
	return r
}

// skip is why a check does not apply.
type skip string

func (s skip) Error() string { return string(s) }

// mismatch is an answer that is not what it should be.
type mismatch struct{ sent, got, want string }

func (m *mismatch) Error() string { return fmt.Sprintf("%s: got %s, want %s", m.sent, m.got, m.want) }

// serverCheck is about the server, resourceCheck about a resource.
type (
	serverCheck struct {
		id, title string
		check     func(context.Context, *server) error
	}
	resourceCheck struct {
		id, title string
		check     func(context.Context, *resource) error
	}
)

// server is the one that is verified.
type server struct {
	Options
	client    *http.Client
	base      *url.URL
	versions  []schema.GroupVersion
	lists     map[schema.GroupVersion]*metav1.APIResourceList
	resources []*resource
	objects   atomic.Int64 // how many names were given
}

// resource is one that objects are created of.
type resource struct {
	*server
	gvr       schema.GroupVersionResource
	kind      string
	verbs     []string
	status    bool // has the sub-resource
	namespace string
	sample    map[string]any
	why       string // there is no sample
}

func (r *resource) name() string {
	if r.gvr.Group == "" {
		return r.gvr.Resource
	}
	return r.gvr.Resource + "." + r.gvr.Version + "." + r.gvr.Group
}

func (r *resource) can(verbs ...string) error {
	if !slices.Contains(r.verbs, "get") && !slices.Contains(r.verbs, "list") {
		return skip("it keeps no objects")
	}
	for _, v := range verbs {
		if !slices.Contains(r.verbs, v) {
			return skip("it has no verb " + v)
		}
	}
	if r.sample == nil && slices.Contains(verbs, "create") {
		return skip("no object could be made: " + r.why)
	}
	return nil
}

// path is that of the resource in the namespace, or of an object.
func (r *resource) path(name ...string) string {
	return strings.Join(append([]string{prefix(r.gvr.GroupVersion()), "namespaces", r.namespace, r.gvr.Resource}, name...), "/")
}

// prefix is the path of a group version.
func prefix(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// wanted tells whether a group version is verified.
func (s *server) wanted(gv schema.GroupVersion) bool {
	group := gv.Group
	if group == "" {
		group = "core"
	}
	return len(s.Groups) == 0 || slices.Contains(s.Groups, group) || slices.Contains(s.Groups, gv.String()) ||
		slices.Contains(s.Groups, group+"/"+gv.Version)
}
