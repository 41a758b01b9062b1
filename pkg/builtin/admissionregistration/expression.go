package admissionregistration

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

// expressions are those of a stored object.
type expressions map[string]bool

const (
	// maxExpressions and maxExpressionBytes are what an object may have in all, and
	// maxExpression is the length of one. To compile one takes 0.3 ms, up to 13 µs for each
	// byte, and if it is a chain of && a time that grows with the square of its length.
	maxExpressions     = 300
	maxExpressionBytes = 32 << 10
	maxExpression      = 8 << 10
)

// knownIn are the expressions that may use what the previous version did not know.
func knownIn(old []string) expressions {
	known := make(expressions, len(old))
	for _, e := range old {
		known[e] = true
	}
	return known
}

// tooMany refuses an object with so many expressions that it takes long to compile them,
// unless the stored one has as many.
func tooMany(now, old []string, at *field.Path) field.ErrorList {
	bytes, before := sum(now), sum(old)
	long := slices.IndexFunc(now, func(e string) bool { return len(e) > maxExpression && !slices.Contains(old, e) })
	switch {
	case long >= 0:
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("one of its expressions has %d bytes, and at most %d are allowed: "+
			"split it into several expressions", len(now[long]), maxExpression))}
	case len(now) > max(maxExpressions, len(old)) || bytes > max(maxExpressionBytes, before):
		return field.ErrorList{field.Forbidden(at, fmt.Sprintf("it has %d expressions with %d bytes, and at most %d with %d bytes are "+
			"allowed: split it into several objects", len(now), bytes, maxExpressions, maxExpressionBytes))}
	}
	return nil
}

func sum(all []string) int {
	n := 0
	for _, e := range all {
		n += len(e)
	}
	return n
}

func ofConditions(conditions []admissionv1.MatchCondition) []string {
	var all []string
	for _, c := range conditions {
		all = append(all, c.Expression)
	}
	return all
}

func ofVariables(variables []admissionv1.Variable) []string {
	var all []string
	for _, v := range variables {
		all = append(all, v.Expression)
	}
	return all
}

func ofValidatingPolicy(p *admissionv1.ValidatingAdmissionPolicy) []string {
	if p == nil {
		return nil
	}
	all := append(ofConditions(p.Spec.MatchConditions), ofVariables(p.Spec.Variables)...)
	for _, v := range p.Spec.Validations {
		all = append(all, v.Expression)
		if v.MessageExpression != "" {
			all = append(all, v.MessageExpression)
		}
	}
	for _, a := range p.Spec.AuditAnnotations {
		all = append(all, a.ValueExpression)
	}
	return all
}

func ofMutatingPolicy(p *admissionv1.MutatingAdmissionPolicy) []string {
	if p == nil {
		return nil
	}
	all := append(ofConditions(p.Spec.MatchConditions), ofVariables(p.Spec.Variables)...)
	for _, m := range p.Spec.Mutations {
		if m.JSONPatch != nil {
			all = append(all, m.JSONPatch.Expression)
		}
		if m.ApplyConfiguration != nil {
			all = append(all, m.ApplyConfiguration.Expression)
		}
	}
	return all
}

func ofHooks(hooks []hook) []string {
	var all []string
	for _, h := range hooks {
		all = append(all, ofConditions(h.MatchConditions)...)
	}
	return all
}

// plain compiles expressions without variables of their own. Its environments
// take a while to build, and all objects share them.
var plain = sync.OnceValue(func() plugincel.Compiler {
	return &serial{compiler: plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))}
})

// serial compiles one expression at a time: an environment of cel-go remembers
// the names of types that expressions use, in a map without a lock
// (https://github.com/google/cel-go/blob/v0.26.0/checker/env.go#L134).
type serial struct {
	mu       sync.Mutex
	compiler plugincel.Compiler
}

// CompileCELExpression implements plugincel.Compiler.
func (s *serial) CompileCELExpression(
	e plugincel.ExpressionAccessor, declared plugincel.OptionalVariableDeclarations, mode environment.Type,
) plugincel.CompilationResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compiler.CompileCELExpression(e, declared, mode)
}

// compiler checks the expressions of one object.
type compiler struct {
	plugincel.Compiler
	known  expressions
	params bool
}

// compile returns why an expression cannot be evaluated.
func (c compiler) compile(e plugincel.ExpressionAccessor, declared plugincel.OptionalVariableDeclarations, at *field.Path) field.ErrorList {
	result := c.CompileCELExpression(e, declared, c.environment(e))
	if result.Error == nil {
		return nil
	}
	return field.ErrorList{celError(e.GetExpression(), result.Error, at)}
}

func (c compiler) environment(e plugincel.ExpressionAccessor) environment.Type {
	if c.known[e.GetExpression()] {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

func (c compiler) declared() plugincel.OptionalVariableDeclarations {
	return plugincel.OptionalVariableDeclarations{HasParams: c.params, HasAuthorizer: true}
}

func celError(expression string, err *apiservercel.Error, at *field.Path) *field.Error {
	switch err.Type {
	case apiservercel.ErrorTypeRequired:
		return field.Required(at, err.Detail)
	case apiservercel.ErrorTypeInvalid:
		return field.Invalid(at, expression, err.Detail)
	}
	return field.InternalError(at, err)
}

// newCompiler returns a compiler that knows the variables, and what is wrong with them.
func newCompiler(variables []admissionv1.Variable, params bool, known expressions, at *field.Path) (compiler, field.ErrorList) {
	c := compiler{Compiler: plain(), known: known, params: params}
	if len(variables) == 0 {
		return c, nil
	}
	composed, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return c, field.ErrorList{field.InternalError(at, fmt.Errorf("environment for variables: %w", err))}
	}
	c.Compiler = composed
	var errs field.ErrorList
	for i, v := range variables {
		errs = append(errs, c.addVariable(composed, v, at.Index(i))...)
	}
	return c, errs
}

func (c compiler) addVariable(composed *plugincel.CompositedCompiler, v admissionv1.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Name) == "" {
		errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
	} else if !isIdentifier(v.Name) {
		errs = append(errs, field.Invalid(at.Child("name"), v.Name, "name is not a valid CEL identifier"))
	}
	if strings.TrimSpace(v.Expression) == "" {
		return append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	}
	variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
	result := composed.CompileAndStoreVariable(variable, c.declared(), c.environment(variable))
	if result.Error != nil {
		errs = append(errs, celError(v.Expression, result.Error, at.Child("expression")))
	}
	return errs
}

// maxConditions is how many match conditions there may be.
const maxConditions = 64

// validateConditions checks match conditions, which do not see variables.
func validateConditions(conditions []admissionv1.MatchCondition, params bool, known expressions, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxConditions {
		errs = append(errs, field.TooMany(at, len(conditions), maxConditions))
	}
	names := map[string]bool{}
	for i, m := range conditions {
		at := at.Index(i)
		if strings.TrimSpace(m.Expression) == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			c := compiler{Compiler: plain(), known: known, params: params}
			errs = append(errs, c.compile((*matchconditions.MatchCondition)(&m), c.declared(), at.Child("expression"))...)
		}
		if m.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		errs = append(errs, check.Messages(at.Child("name"), m.Name, validation.IsQualifiedName(m.Name))...)
		if names[m.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), m.Name))
		}
		names[m.Name] = true
	}
	return errs
}

// isIdentifier tells whether a CEL variable can have the name
// (https://github.com/google/cel-spec/blob/master/doc/langdef.md#syntax).
func isIdentifier(name string) bool {
	reserved := []string{
		"true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if",
		"import", "let", "loop", "package", "namespace", "return", "var", "void", "while",
	}
	return identifier().MatchString(name) && !slices.Contains(reserved, name)
}

var identifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`) })
