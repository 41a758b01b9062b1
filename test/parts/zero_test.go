package parts

import (
	"go/ast"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// around are parts that others need.
func around() controlplane.Parts {
	return controlplane.Parts{
		core.Namespaces{},
		core.ConfigMaps{},
		core.Secrets{},
		core.ServiceAccounts{},
		core.ResourceQuotas{},
		core.LimitRanges{},
		rbac.All(), admissionregistration.All(),
		certificates.CertificateSigningRequests{},
		kube.FlowControl(),
		crd.Definitions{},
		authn.Admin{},
		admit.ValidatingPolicies{},
	}
}

// withAround is a part in a plane that has what it may need.
func withAround(p controlplane.Part) []controlplane.Part {
	all := []controlplane.Part{p}
	var add func(controlplane.Parts)
	add = func(parts controlplane.Parts) {
		for _, other := range parts {
			if several, ok := other.(controlplane.Parts); ok {
				add(several)
			} else if reflect.TypeOf(other) != reflect.TypeOf(p) {
				all = append(all, other)
			}
		}
	}
	add(around())
	return all
}

// TestZeroValues: the zero value of a part works, or its documentation says what is
// required, and so does the error.
func TestZeroValues(t *testing.T) {
	required := requiredFields(t)
	for _, p := range zeros() {
		fields := required[nameOf(p)]
		_, err := controlplane.New("test").Storage(memory.Store{}).With(withAround(p)...).Build()
		switch {
		case err == nil && len(fields) > 0:
			t.Errorf("%s: the documentation has %v required, and the zero value is accepted", nameOf(p), fields)
		case err != nil && len(fields) == 0:
			t.Errorf("%s: the zero value is refused, and the documentation has nothing required: %v", nameOf(p), err)
		case err == nil:
			continue
		}
		for _, f := range fields {
			if !regexp.MustCompile(`\b` + f + `\b`).MatchString(err.Error()) {
				t.Errorf("%s: the documentation has %s required, and the error does not name it: %v", nameOf(p), f, err)
			}
		}
		isStruct := reflect.TypeOf(p).Kind() == reflect.Struct
		if lines := strings.Split(err.Error(), "\n"); isStruct && len(fields) > 0 && len(lines) > len(fields) {
			t.Errorf("%s: the error is about more than what is required, %v: %v", nameOf(p), fields, err)
		}
	}
}

// sentence is the last one of the documentation of what may not be empty.
var sentence = regexp.MustCompile(`(^|\s)Required(\.| unless [^.]+\.|: [^.]+\.)$`)

// requiredFields are the required fields of each exported struct of the library. What is
// required of a type that is none is "function" for one of a function, and else its
// name.
func requiredFields(t *testing.T) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	eachFile(t, func(dir string, f *ast.File) {
		ast.Inspect(f, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok {
				return true
			}
			for _, spec := range decl.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
					all[dir+"."+s.Name.Name] = required(decl, s)
				}
			}
			return false
		})
	})
	return all
}

func required(decl *ast.GenDecl, spec *ast.TypeSpec) []string {
	switch t := spec.Type.(type) {
	case *ast.StructType:
		var names []string
		for _, f := range t.Fields.List {
			if says(f.Doc) {
				for _, n := range f.Names {
					names = append(names, n.Name)
				}
			}
		}
		if len(names) == 0 && says(decl.Doc) {
			return []string{strings.ToLower(spec.Name.Name)}
		}
		return slices.Clip(names)
	case *ast.FuncType:
		if says(decl.Doc) {
			return []string{"function"}
		}
	}
	return nil
}

func says(doc *ast.CommentGroup) bool {
	return sentence.MatchString(strings.Join(strings.Fields(doc.Text()), " "))
}
