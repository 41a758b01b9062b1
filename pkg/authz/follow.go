package authz

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"k8s.io/client-go/util/connrotation"

	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// noID is this server's ID in the metrics of reloads: they are per process, and
// planes have no ID.
const noID = ""

// followed is a configuration in a running plane. Many goroutines ask it; one
// does the rest.
type followed struct {
	current
	file   string
	roles  *roles // nil: the configuration that was built has no RBAC
	dialer *connrotation.Dialer
	begun  bool // something is in force
	// changed is told of another configuration.
	changed func()
}

// source is the file, which this plane follows.
func (f *followed) source(read func(file string) ([]byte, error)) follow.Source {
	return follow.Source{What: "authorization configuration", File: f.file, Read: read, Use: f.reload}
}

// reload puts content in force, or returns why it cannot, and counts.
func (f *followed) reload(_ context.Context, content []byte) error {
	err := f.apply(content)
	switch {
	case f.begun && err != nil:
		configmetrics.RecordAuthorizationConfigAutomaticReloadFailure(noID)
	case f.begun:
		configmetrics.RecordAuthorizationConfigAutomaticReloadSuccess(noID, string(content))
	case err == nil:
		f.begun = true
		configmetrics.RecordAuthorizationConfigLastConfigInfo(noID, string(content))
	}
	return err
}

// apply puts content in force, or returns why it cannot.
func (f *followed) apply(content []byte) error {
	entries, err := parse(content)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	if has := hasRBAC(entries); has != (f.roles != nil) {
		if has {
			return fmt.Errorf("%s: authorizers: type RBAC was added: restart the server to apply this", f.file)
		}
		return fmt.Errorf("%s: authorizers: type RBAC was removed: restart the server to apply this", f.file)
	}
	next, err := f.open(entries)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	f.known.Store(&next)
	if f.changed != nil {
		f.changed()
	}
	return nil
}

// open joins the authorizers of a configuration.
func (f *followed) open(entries []entry) (countedWithRules, error) {
	var asked []union.NamedAuthorizer
	var listed []authorizer.RuleResolver
	var errs []error
	for _, e := range entries {
		if e.webhook == nil {
			roles := countDecisions(string(typeRBAC), e.name, f.roles)
			asked = append(asked, union.NamedAuthorizer{AuthorizerName: e.name, Authorizer: roles})
			listed = append(listed, f.roles)
			continue
		}
		a, err := e.webhook.open(f.dialer)
		if err != nil {
			errs = append(errs, fmt.Errorf("authorizer %q: %w", e.name, err))
		}
		asked = append(asked, union.NamedAuthorizer{AuthorizerName: e.name, Authorizer: a})
		listed = append(listed, a)
	}
	all, err := union.New(asked...)
	return countedWithRules{Authorizer: all, RuleResolver: union.NewRuleResolvers(listed...)}, errors.Join(append(errs, err)...)
}
