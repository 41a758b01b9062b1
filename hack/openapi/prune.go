package main

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// definition is one type's function in the output of openapi-gen.
type definition struct {
	function string
	// key is the map key as written: corev1.ConfigMap{}.OpenAPIModelName().
	key string
	// source is the text of the function.
	source []byte
	// needs are the types ("import/path.Type") it refers to.
	needs []string
	// imports are the names of the packages it uses.
	imports map[string]bool
}

// source is a parsed output of openapi-gen.
type source struct {
	text    []byte
	files   *token.FileSet
	imports map[string]string     // name -> import path
	types   map[string]definition // "import/path.Type"
	model   *regexp.Regexp        // an expression that names a type
}

// prune returns the Go file of an output, with one function per set, and the
// definitions that the roots of the sets reach. Types of shared packages are left
// out; any other type that is not of the output's packages is an error.
func (s *source) prune(out output, shared []string) ([]byte, error) {
	used := map[string]bool{}
	var functions bytes.Buffer
	for _, set := range out.sets {
		reached, err := s.reach(set.roots, out.packages, shared)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", set.function, err)
		}
		fmt.Fprintf(&functions, "\n// %s\n", strings.ReplaceAll(set.doc, "\n", "\n// "))
		fmt.Fprintf(&functions, "func %s(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {\n", set.function)
		functions.WriteString("\treturn map[string]common.OpenAPIDefinition{\n")
		for _, name := range reached {
			fmt.Fprintf(&functions, "\t\t%s: %s(ref),\n", s.types[name].key, s.types[name].function)
			used[name] = true
		}
		functions.WriteString("\t}\n}\n")
	}
	return s.write(path.Base(out.dir), functions.Bytes(), slices.Sorted(maps.Keys(used)))
}

// parse indexes an output of openapi-gen by type.
func parse(text []byte) (*source, error) {
	src := &source{
		text: text, files: token.NewFileSet(), imports: map[string]string{}, types: map[string]definition{},
		model: regexp.MustCompile(`^(\w+)\.(\w+)\{\}\.OpenAPIModelName\(\)$`),
	}
	file, err := parser.ParseFile(src.files, fileName, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, i := range file.Imports {
		target, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return nil, err
		}
		name := path.Base(target)
		if i.Name != nil {
			name = i.Name.Name
		}
		src.imports[name] = target
	}
	bodies := map[string]*ast.FuncDecl{}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			bodies[f.Name.Name] = f
		}
	}
	top, ok := bodies["GetOpenAPIDefinitions"]
	if !ok {
		return nil, fmt.Errorf("openapi-gen wrote no GetOpenAPIDefinitions: its output has a new form")
	}
	var errs []error
	ast.Inspect(top, func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if ok {
			errs = append(errs, src.add(kv, bodies))
		}
		return !ok
	})
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(src.types) == 0 {
		return nil, fmt.Errorf("openapi-gen wrote no definitions: do the packages carry the comment +k8s:openapi-gen=true?")
	}
	return src, nil
}

// add indexes one entry of the map that GetOpenAPIDefinitions returns.
func (s *source) add(kv *ast.KeyValueExpr, bodies map[string]*ast.FuncDecl) error {
	name, ok := s.modelName(kv.Key)
	call, isCall := kv.Value.(*ast.CallExpr)
	if !ok || !isCall {
		return fmt.Errorf("%s: not of the form pkg.Type{}.OpenAPIModelName(): schema(ref)", s.slice(kv))
	}
	function := string(s.slice(call.Fun))
	body, ok := bodies[function]
	if !ok {
		return fmt.Errorf("%s: function %s is missing", name, function)
	}
	d := definition{function: function, key: string(s.slice(kv.Key)), source: s.slice(body), imports: map[string]bool{}}
	var err error
	ast.Inspect(body, func(n ast.Node) bool {
		if path := byPath(n); path != "" {
			err = fmt.Errorf("%s refers to %s by Go path: its package has no model names", name, path)
		}
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok && s.imports[id.Name] != "" {
				d.imports[id.Name] = true
			}
		}
		if e, ok := n.(ast.Expr); ok {
			if need, ok := s.modelName(e); ok && need != name {
				d.needs = append(d.needs, need)
			}
		}
		return true
	})
	s.types[name] = d
	return err
}

// byPath returns the argument of ref("import/path.Type"), with which
// openapi-gen refers to a type without a known OpenAPIModelName method.
func byPath(n ast.Node) string {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return ""
	}
	if id, ok := call.Fun.(*ast.Ident); !ok || id.Name != "ref" {
		return ""
	}
	if literal, ok := call.Args[0].(*ast.BasicLit); ok {
		return literal.Value
	}
	return ""
}

// modelName reports the type of an expression pkg.Type{}.OpenAPIModelName().
func (s *source) modelName(e ast.Expr) (string, bool) {
	names := s.model.FindSubmatch(s.slice(e))
	if names == nil {
		return "", false
	}
	return s.imports[string(names[1])] + "." + string(names[2]), true
}

func (s *source) slice(n ast.Node) []byte {
	return s.text[s.files.Position(n.Pos()).Offset:s.files.Position(n.End()).Offset]
}

// reach lists the types of packages that the roots need, sorted. Shared types that are
// not of the packages are left out.
func (s *source) reach(roots, packages, shared []string) ([]string, error) {
	var queue []string
	for _, root := range roots {
		pkg, all := strings.CutSuffix(root, ".*")
		if !all {
			queue = append(queue, root)
			continue
		}
		for name := range s.types {
			if packageOf(name) == pkg {
				queue = append(queue, name)
			}
		}
	}
	reached := map[string]bool{}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		pkg := packageOf(name)
		own := slices.Contains(packages, pkg)
		if reached[name] || !own && slices.Contains(shared, pkg) {
			continue
		}
		d, ok := s.types[name]
		if !ok || !own {
			return nil, fmt.Errorf("type %s is needed and no generated file has it: add its package to the output", name)
		}
		reached[name] = true
		queue = append(queue, d.needs...)
	}
	return slices.Sorted(maps.Keys(reached)), nil
}

func packageOf(name string) string { return name[:strings.LastIndex(name, ".")] }

// write assembles the file: the functions of the sets, then the definitions,
// and the imports in use.
func (s *source) write(pkg string, functions []byte, types []string) ([]byte, error) {
	imports := map[string]bool{"common": true}
	for _, name := range types {
		maps.Copy(imports, s.types[name].imports)
		key, _, _ := strings.Cut(s.types[name].key, ".")
		imports[key] = true
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Code generated by hack/openapi with openapi-gen. DO NOT EDIT.\n\npackage %s\n\nimport (\n", pkg)
	names := slices.SortedFunc(maps.Keys(imports), func(x, y string) int {
		return strings.Compare(s.imports[x], s.imports[y])
	})
	for _, name := range names {
		fmt.Fprintf(&b, "\t%s %q\n", name, s.imports[name])
	}
	b.WriteString(")\n")
	b.Write(functions)
	for _, name := range types {
		b.WriteString("\n")
		b.Write(s.types[name].source)
		b.WriteString("\n")
	}
	return format.Source(b.Bytes())
}
