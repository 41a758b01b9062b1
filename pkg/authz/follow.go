package authz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/union"
	configmetrics "k8s.io/apiserver/pkg/server/options/authorizationconfig/metrics"
	"k8s.io/client-go/util/connrotation"
	"k8s.io/klog/v2"
)

const (
	// configEvery is how soon a change of the file is noticed.
	configEvery = time.Second
	// configRetry is how soon what could not be used is tried again although the
	// file has not changed: a kubeconfig may have.
	configRetry = 10 * time.Second
	// noID is what the metrics of reloads call this server: they are of the
	// process, and planes have no identity to tell there.
	noID = ""
)

// followed is a configuration in a running plane. Questions are asked by many
// goroutines; one goroutine has the rest.
type followed struct {
	current
	file   string
	roles  *roles // nil: the configuration that was built has no RBAC
	dialer *connrotation.Dialer

	used, refused []byte    // content in force, and what could not be
	again         time.Time // when to try what was refused
	told          string    // the error that was logged
}

// begin puts the first content in force.
func (f *followed) begin() error {
	content, err := os.ReadFile(f.file)
	if err != nil {
		return err
	}
	if err := f.use(content); err != nil {
		return err
	}
	configmetrics.RecordAuthorizationConfigLastConfigInfo(noID, string(content))
	return nil
}

// follow looks at the file until the context ends.
func (f *followed) follow(ctx context.Context) {
	ticker := time.NewTicker(configEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			f.look(ctx, now)
		}
	}
}

// look puts new content in force. What cannot be is logged once, and changes nothing.
func (f *followed) look(ctx context.Context, now time.Time) {
	content, err := os.ReadFile(f.file)
	if err != nil {
		f.tell(ctx, err)
		return
	}
	if bytes.Equal(content, f.used) {
		f.refused, f.told = nil, ""
		return
	}
	if bytes.Equal(content, f.refused) && now.Before(f.again) {
		return
	}
	if err := f.use(content); err != nil {
		f.refused, f.again = content, now.Add(configRetry)
		configmetrics.RecordAuthorizationConfigAutomaticReloadFailure(noID)
		f.tell(ctx, err)
		return
	}
	f.refused, f.told = nil, ""
	configmetrics.RecordAuthorizationConfigAutomaticReloadSuccess(noID, string(content))
	klog.FromContext(ctx).Info("Loaded a changed authorization configuration", "file", f.file)
}

// tell logs why the file is not used, unless it was the last thing told.
func (f *followed) tell(ctx context.Context, err error) {
	if ctx.Err() == nil && err.Error() != f.told {
		f.told = err.Error()
		klog.FromContext(ctx).Error(err, "Kept the authorization configuration that was in force", "file", f.file)
	}
}

// use puts content in force, or says why it does not.
func (f *followed) use(content []byte) error {
	entries, err := parse(content)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	if has := hasRBAC(entries); has != (f.roles != nil) {
		if has {
			return fmt.Errorf("%s: authorizers: type RBAC is new: it needs a restart", f.file)
		}
		return fmt.Errorf("%s: authorizers: type RBAC is missing: to take it out needs a restart", f.file)
	}
	next, err := f.open(entries)
	if err != nil {
		return fmt.Errorf("%s: %w", f.file, err)
	}
	f.used = content
	f.known.Store(&next)
	return nil
}

// open makes the authorizers of a configuration one.
func (f *followed) open(entries []entry) (ruled, error) {
	var asked []authorizer.Authorizer
	var listed []authorizer.RuleResolver
	var errs []error
	for _, e := range entries {
		if e.webhook == nil {
			asked, listed = append(asked, counted(string(typeRBAC), e.name, f.roles)), append(listed, f.roles)
			continue
		}
		a, err := e.webhook.open(f.dialer)
		if err != nil {
			errs = append(errs, fmt.Errorf("authorizer %q: %w", e.name, err))
		}
		asked, listed = append(asked, a), append(listed, a)
	}
	return ruled{Authorizer: union.New(asked...), RuleResolver: union.NewRuleResolvers(listed...)}, errors.Join(errs...)
}
