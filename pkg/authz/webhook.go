package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apivalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/connrotation"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// The defaults of the fields of a Webhook. The TTLs are those of kube-apiserver.
const (
	webhookName            = "webhook"
	webhookTimeout         = 3 * time.Second
	webhookMaxTimeout      = 30 * time.Second
	webhookAuthorizedTTL   = 5 * time.Minute
	webhookUnauthorizedTTL = 30 * time.Second
)

// Webhook sends SubjectAccessReviews of authorization.k8s.io/v1 to another
// server, which allows, denies or has no opinion.
// https://kubernetes.io/docs/reference/access-authn-authz/webhook/
//
// Reviews have the selectors of a request. Failed reviews are sent again only
// where that may help: up to five times, after 500 ms and longer, when the answer
// is 429, 500 or 504 or the connection was reset.
type Webhook struct {
	// Name is what errors and metrics call the webhook: a lower case DNS name that
	// no other webhook has. Empty: "webhook".
	Name string
	// ConfigFile is a kubeconfig that says where the other server is and how to log in
	// there. Reviews are posted to the URL of its cluster as it stands. It is read
	// by Build, and when a server starts; only its owner and group may have
	// permissions on it. Required unless Client is set.
	ConfigFile string
	// Client says the same without a file: Host is the URL that reviews are posted
	// to. Required unless ConfigFile is set.
	Client *rest.Config
	// Timeout bounds one request, to at most 30 seconds. Empty: 3 seconds.
	Timeout time.Duration
	// AuthorizedTTL is how long an answer that allows is kept. Empty: 5 minutes.
	// Negative: it is not.
	AuthorizedTTL time.Duration
	// UnauthorizedTTL is how long an answer that does not allow is kept. Empty: 30
	// seconds. Negative: it is not.
	UnauthorizedTTL time.Duration
	// FailurePolicy is the decision when the other server gives no answer or a
	// match condition fails: NoOpinion asks the later parts. Empty: Deny.
	FailurePolicy Decision
	// MatchConditions are CEL expressions. The other server is asked when all are
	// true; otherwise the part has no opinion. Variable request is the spec of
	// the SubjectAccessReview: "has(request.resourceAttributes) && request.user
	// != 'root'". Empty: all requests. At most 64.
	// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#using-configuration-file-for-authorization
	MatchConditions []string
}

// PartName implements the name errors use.
func (Webhook) PartName() string { return "authz.Webhook" }

// Install declares the authorizer.
func (w Webhook) Install(p *controlplane.Plan) error {
	if err := w.validate(); err != nil {
		return err
	}
	p.Read(w.check)
	connection := w.connection()
	known, dialer := &current{}, w.dialer()
	name := "authorization webhook " + connection.name
	p.Authorize(name, known)
	p.Work(controlplane.Work{Name: name, Stop: dialer.CloseAll, Start: func(context.Context, *controlplane.Plane) error {
		a, err := connection.open(dialer)
		if err == nil {
			known.known.Store(&a)
		}
		return err
	}})
	return nil
}

// validate returns all that is wrong, by field.
func (w Webhook) validate() error {
	var errs []error
	wrong := func(field string, err error) { errs = append(errs, fmt.Errorf("field %s: %w", field, err)) }
	if w.Name != "" {
		if problems := validation.IsDNS1123Subdomain(w.Name); len(problems) > 0 {
			wrong("Name", fmt.Errorf("%q: %s", w.Name, strings.Join(problems, ", ")))
		}
	}
	if w.Timeout < 0 || w.Timeout > webhookMaxTimeout {
		wrong("Timeout", fmt.Errorf("%v: want at most %v, or 0 for %v", w.Timeout, webhookMaxTimeout, webhookTimeout))
	}
	if w.FailurePolicy != Deny && w.FailurePolicy != NoOpinion {
		wrong("FailurePolicy", fmt.Errorf("%d: want authz.Deny or authz.NoOpinion", w.FailurePolicy))
	}
	c := w.connection()
	_, problems := apivalidation.ValidateAndCompileMatchConditions(compilerOf(c.conditions), c.conditions)
	rename := strings.NewReplacer("matchConditions", "MatchConditions", ".expression", "")
	for _, problem := range problems {
		wrong(rename.Replace(problem.Field), errors.New(problem.ErrorBody()))
	}
	if (w.ConfigFile == "") == (w.Client == nil) {
		errs = append(errs, errors.New("fields ConfigFile and Client: set exactly one"))
	}
	return errors.Join(errs...)
}

// check reads the files that say where the other server is.
func (w Webhook) check() error {
	err := w.connection().check()
	switch {
	case err == nil:
		return nil
	case w.Client != nil:
		return fmt.Errorf("field Client: %w", err)
	}
	return fmt.Errorf("field ConfigFile: %s: %w", w.ConfigFile, err)
}

// connection is the webhook with all defaults filled in.
func (w Webhook) connection() connection {
	c := connection{
		name: w.Name, kubeconfig: w.ConfigFile, version: "v1", timeout: w.Timeout, onError: w.FailurePolicy,
		authorized:   ttl(w.AuthorizedTTL, webhookAuthorizedTTL),
		unauthorized: ttl(w.UnauthorizedTTL, webhookUnauthorizedTTL),
	}
	if w.Client != nil {
		c.client = rest.CopyConfig(w.Client)
	}
	if c.name == "" {
		c.name = webhookName
	}
	if c.timeout == 0 {
		c.timeout = webhookTimeout
	}
	for _, expression := range w.MatchConditions {
		c.conditions = append(c.conditions, apiserver.WebhookMatchCondition{Expression: expression})
	}
	return c
}

// dialer makes the connections, which end with the plane.
func (w Webhook) dialer() *connrotation.Dialer {
	if w.Client == nil {
		return newDialer(nil)
	}
	return newDialer(w.Client.Dial)
}

// ttl is how long the plugin keeps answers: 0 is not at all.
func ttl(wanted, otherwise time.Duration) time.Duration {
	if wanted == 0 {
		return otherwise
	}
	return max(wanted, 0)
}
