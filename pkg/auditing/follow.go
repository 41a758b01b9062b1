package auditing

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/follow"
)

// chosen is the policy that a part was given, by its fields.
type chosen struct {
	policy *auditv1.Policy
	file   string
	read   func(file string) ([]byte, error)
}

// declare evaluates the policy for a back end. It declares the work that follows a
// file.
func (c chosen) declare(p *controlplane.Plan, name string) (audit.PolicyRuleEvaluator, error) {
	switch {
	case c.policy != nil && c.file != "":
		return nil, fmt.Errorf("fields Policy and PolicyFile (%q): set only one", c.file)
	case c.read != nil && c.file == "":
		return nil, errors.New("field Read: is how PolicyFile is read, which is empty: set both")
	case c.file != "":
		return c.follow(p, name)
	}
	e, err := evaluator(c.policy)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return e, nil
}

// follow puts the policy of the file in force, and declares the work that follows it.
func (c chosen) follow(p *controlplane.Plan, name string) (audit.PolicyRuleEvaluator, error) {
	f := &followed{}
	file := &follow.File{Source: follow.Source{What: "audit policy of " + name, File: c.file, Read: c.read, Use: f.use}}
	content, err := file.Content()
	if err != nil {
		return nil, fmt.Errorf("policy file: %w", err)
	}
	if err := f.put(content); err != nil {
		return nil, fmt.Errorf("policy file %q: %w", c.file, err)
	}
	file.Begun(content)
	p.Work(controlplane.Work{
		Name: file.Name(),
		Run:  func(ctx context.Context, _ *controlplane.Plane) error { return file.Run(ctx) },
	})
	return f, nil
}

// followed is the policy of a file, which may change while requests ask for it.
type followed struct {
	current atomic.Pointer[audit.PolicyRuleEvaluator]
}

// EvaluatePolicyRule implements audit.PolicyRuleEvaluator.
func (f *followed) EvaluatePolicyRule(a authorizer.Attributes) audit.RequestAuditConfig {
	return (*f.current.Load()).EvaluatePolicyRule(a)
}

func (f *followed) use(_ context.Context, content []byte) error { return f.put(content) }

// put puts the content of a file in force, or returns why it cannot.
func (f *followed) put(content []byte) error {
	p, err := parse(content)
	if err != nil {
		return err
	}
	next, err := evaluator(p)
	if err != nil {
		return err
	}
	f.current.Store(&next)
	return nil
}
