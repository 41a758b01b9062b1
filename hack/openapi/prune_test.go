package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const generated = `package x

import (
	fruit "example.org/fruit"
	meta "example.org/meta"
	common "k8s.io/kube-openapi/pkg/common"
)

func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	return map[string]common.OpenAPIDefinition{
		fruit.Apple{}.OpenAPIModelName(): apple(ref),
		fruit.Seed{}.OpenAPIModelName():  seed(ref),
		fruit.Pear{}.OpenAPIModelName():  pear(ref),
		fruit.Plum{}.OpenAPIModelName():  plum(ref),
		meta.Object{}.OpenAPIModelName(): object(ref),
	}
}

func apple(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return use(ref(fruit.Seed{}.OpenAPIModelName()), ref(meta.Object{}.OpenAPIModelName()))
}

func seed(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return use(ref(fruit.Seed{}.OpenAPIModelName()))
}

func pear(ref common.ReferenceCallback) common.OpenAPIDefinition { return use() }

func plum(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return use(ref(meta.Object{}.OpenAPIModelName()))
}

func object(ref common.ReferenceCallback) common.OpenAPIDefinition { return use() }
`

func TestPrune(t *testing.T) {
	cases := map[string]struct {
		reason    string
		source    string
		roots     []string
		packages  []string
		shared    []string
		functions []string
		imports   []string
		err       string
	}{
		"Closure": {
			reason:    "what a root needs comes along, what nothing needs stays out, and a type that refers to itself ends",
			roots:     []string{"example.org/fruit.Apple"},
			shared:    []string{"example.org/meta"},
			functions: []string{"things", "apple", "seed"},
			imports:   []string{"example.org/fruit", "example.org/meta", "k8s.io/kube-openapi/pkg/common"},
		},
		"UnusedImport": {
			reason:    "an import that no kept definition uses would not compile",
			roots:     []string{"example.org/fruit.Pear"},
			functions: []string{"things", "pear"},
			imports:   []string{"example.org/fruit", "k8s.io/kube-openapi/pkg/common"},
		},
		"WholePackage": {
			reason:    "a star takes every type of a package",
			roots:     []string{"example.org/meta.*"},
			packages:  []string{"example.org/meta"},
			functions: []string{"things", "object"},
			imports:   []string{"example.org/meta", "k8s.io/kube-openapi/pkg/common"},
		},
		"UnknownRoot": {
			reason: "a root that was removed upstream is reported by name",
			roots:  []string{"example.org/fruit.Quince"},
			err:    "example.org/fruit.Quince is needed",
		},
		"OtherPackage": {
			reason: "a type of another output is not written twice",
			roots:  []string{"example.org/fruit.Plum"},
			err:    "example.org/meta.Object is needed",
		},
		"ByPath": {
			reason: "a reference by Go path would name a model that no definition has",
			source: strings.Replace(generated, "ref(fruit.Seed{}.OpenAPIModelName())", `ref("example.org/other.Type")`, 1),
			roots:  []string{"example.org/fruit.Apple"},
			err:    "by Go path",
		},
		"OtherForm": {
			reason: "a new form of openapi-gen's output is noticed, not silently emptied",
			source: "package x\n",
			err:    "no GetOpenAPIDefinitions",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := tc.source
			if source == "" {
				source = generated
			}
			want := output{dir: "fruit", packages: tc.packages, sets: []set{{function: "things", doc: "things are.", roots: tc.roots}}}
			if want.packages == nil {
				want.packages = []string{"example.org/fruit"}
			}
			var out []byte
			src, err := parse([]byte(source))
			if err == nil {
				out, err = src.prune(want, tc.shared)
			}
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%s: got error %v, want one with %q", tc.reason, err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			functions, imports := declared(t, out)
			if diff := cmp.Diff(tc.functions, functions); diff != "" {
				t.Errorf("%s: functions (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.imports, imports); diff != "" {
				t.Errorf("%s: imports (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// declared lists the functions and the imports of a Go file.
func declared(t *testing.T, text []byte) (functions, imports []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "out.go", text, 0)
	if err != nil {
		t.Fatalf("pruned file does not parse: %v\n%s", err, text)
	}
	for _, i := range file.Imports {
		imports = append(imports, strings.Trim(i.Path.Value, `"`))
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			functions = append(functions, f.Name.Name)
		}
	}
	return functions, imports
}
