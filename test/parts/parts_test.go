package parts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/backup"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authentication"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/certificates"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/endpoints"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/encryption"
	"github.com/sailplane-dev/sailplane/pkg/extend"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/insight"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/quota"
	"github.com/sailplane-dev/sailplane/pkg/serviceaccount"
	"github.com/sailplane-dev/sailplane/pkg/services"
	"github.com/sailplane-dev/sailplane/pkg/sharing"
	"github.com/sailplane-dev/sailplane/pkg/storageapi"
	"github.com/sailplane-dev/sailplane/pkg/tracing"
)

const module = "github.com/sailplane-dev/sailplane/"

// zeros are the zero values of all types that are parts.
func zeros() []controlplane.Part {
	return []controlplane.Part{
		controlplane.PartFunc(nil), controlplane.ServerPartFunc(nil),
		controlplane.Parts{},
		&apis.Group{},

		core.Namespaces{},
		core.ConfigMaps{},
		core.Secrets{},
		core.ServiceAccounts{},
		core.Services{},
		core.Endpoints{},
		core.Events{},
		core.ResourceQuotas{},
		core.LimitRanges{},
		coordination.Leases{},
		endpoints.EndpointSlices{},
		rbac.Roles{},
		rbac.ClusterRoles{},
		rbac.RoleBindings{},
		rbac.ClusterRoleBindings{},
		certificates.CertificateSigningRequests{},
		certificates.ClusterTrustBundles{},
		certificates.PodCertificateRequests{},
		certificates.Signer{},
		authentication.TokenReviews{},
		authentication.SelfSubjectReviews{},
		authorization.SubjectAccessReviews{},
		authorization.LocalSubjectAccessReviews{},
		authorization.SelfSubjectAccessReviews{},
		authorization.SelfSubjectRulesReviews{},
		admissionregistration.ValidatingWebhookConfigurations{},
		admissionregistration.MutatingWebhookConfigurations{},
		admissionregistration.ValidatingAdmissionPolicies{},
		admissionregistration.ValidatingAdmissionPolicyBindings{},
		admissionregistration.MutatingAdmissionPolicies{},
		admissionregistration.MutatingAdmissionPolicyBindings{},
		admissionregistration.PolicyStatus{},

		crd.Definitions{},
		crd.Conversion{},
		aggregator.APIServices{},
		extend.CreateReviews{},
		extend.Host{},
		lifecycle.GarbageCollection{},
		lifecycle.OwnerPermissions{},
		lifecycle.DefaultServiceAccounts{},
		lifecycle.RootCA{},
		quota.ResourceQuotas{},
		quota.LimitRanges{},
		admit.ValidatingPolicies{},
		admit.MutatingPolicies{},
		admit.ValidatingWebhooks{},
		admit.MutatingWebhooks{},

		authn.Admin{},
		authn.ServingCertificate{},
		authn.ClientCA{},
		authn.Tokens{},
		authn.JWT{},
		authn.Webhook{},
		authn.Proxy{},
		authn.Anonymous{},
		serviceaccount.Tokens{},
		sharing.Files{},
		services.Addresses{},
		services.Resolver{},
		authz.Groups{},
		authz.RBAC{},
		authz.Webhook{},
		authz.Config{},
		authz.FilteredLists{},
		auditing.Log{},
		auditing.Webhook{},
		fairness.PriorityAndFairness{},
		fairness.Limits{},
		middleware.Profiling{},
		insight.Status{},
		insight.Maintenance{},
		backup.Endpoint{},
		backup.Schedule{},
		storageapi.EtcdStorages{},
		encryption.AtRest{},
		tracing.OTLP{},
	}
}

// nameOf is the package and the type of a part: "pkg/authz.Groups".
func nameOf(p controlplane.Part) string {
	t := reflect.TypeOf(p)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return strings.TrimPrefix(t.PkgPath(), module) + "." + t.Name()
}

// TestZerosAreAll: the list above has every exported type that has a method of a part.
func TestZerosAreAll(t *testing.T) {
	listed := map[string]bool{}
	for _, p := range zeros() {
		listed[nameOf(p)] = true
	}
	inSource := partsInSource(t)
	for name := range inSource {
		if !listed[name] {
			t.Errorf("%s is a part: add its zero value to the list", name)
		}
	}
	for name := range listed {
		if !inSource[name] {
			t.Errorf("%s is in the list and not in the source", name)
		}
	}
}

// partsInSource are the exported types below pkg that have a method Install or
// InstallServer which takes a plan.
func partsInSource(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	eachFile(t, func(dir string, f *ast.File) {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if ok && fn.Recv != nil && installs(fn) && ast.IsExported(receiver(fn)) {
				found[dir+"."+receiver(fn)] = true
			}
		}
	})
	return found
}

// installs tells whether a method is one of a part.
func installs(fn *ast.FuncDecl) bool {
	if !slices.Contains([]string{"Install", "InstallServer"}, fn.Name.Name) || len(fn.Type.Params.List) != 1 {
		return false
	}
	plan, ok := fn.Type.Params.List[0].Type.(*ast.StarExpr)
	if !ok {
		return false
	}
	name := ""
	switch x := plan.X.(type) {
	case *ast.SelectorExpr:
		name = x.Sel.Name
	case *ast.Ident:
		name = x.Name
	}
	return name == "Plan" || name == "ServerPlan"
}

// receiver is the name of the type that a method is of.
func receiver(fn *ast.FuncDecl) string {
	t := fn.Recv.List[0].Type
	if p, ok := t.(*ast.StarExpr); ok {
		t = p.X
	}
	if name, ok := t.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// eachFile calls a function with every file of the library that is no test, and its
// folder.
func eachFile(t *testing.T, do func(dir string, f *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(filepath.Join(root, "pkg"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		if strings.HasPrefix(filepath.Base(name), "zz_generated") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		do(path.Dir(filepath.ToSlash(rel)), f)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
