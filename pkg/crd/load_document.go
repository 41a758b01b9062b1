package crd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// maxListDepth is how deep lists may stand in lists. Nobody nests them; an alias
// to the list around it would never end.
const maxListDepth = 4

// objects parses the chunk and returns its objects, those of lists one by one.
// It returns what it could read together with the error.
func (c chunk) objects() ([]*yaml.Node, error) {
	var objects []*yaml.Node
	var errs []error
	decoder := yaml.NewDecoder(bytes.NewReader(c.data))
	for {
		var document yaml.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			// The parser does not know where the next document starts.
			errs = append(errs, c.syntaxProblem(err))
			break
		}
		for _, root := range document.Content {
			found, err := c.flatten(root, 0)
			objects = append(objects, found...)
			errs = append(errs, err)
		}
	}
	return objects, errors.Join(errs...)
}

// flatten returns the object that root is, or those of the list that it is.
func (c chunk) flatten(root *yaml.Node, depth int) ([]*yaml.Node, error) {
	root = resolve(root)
	if depth > maxListDepth {
		return nil, c.problem(root.Line, "", fmt.Sprintf("lists in lists, more than %d deep", maxListDepth))
	}
	if kindOf(root) == kindNull {
		return nil, nil
	}
	if kindOf(root) != kindObject {
		return nil, c.problem(root.Line, "", fmt.Sprintf("expected an object, found %s", kindOf(root)))
	}
	switch kind := scalar(root, "kind"); kind {
	case "List", "CustomResourceDefinitionList":
	default:
		return []*yaml.Node{root}, nil
	}
	_, items := child(root, "items")
	if items = resolve(items); items == nil || kindOf(items) == kindNull {
		return nil, nil
	}
	if kindOf(items) != kindList {
		return nil, c.problem(items.Line, "items", fmt.Sprintf("expected a list, found %s", kindOf(items)))
	}
	var objects []*yaml.Node
	var errs []error
	for _, item := range items.Content {
		found, err := c.flatten(item, depth+1)
		objects = append(objects, found...)
		errs = append(errs, err)
	}
	return objects, errors.Join(errs...)
}

// foreign tells whether an object belongs to another API than CRDs, and its kind.
func foreign(root *yaml.Node) (kind string, ok bool) {
	kind = scalar(root, "kind")
	apiVersion := scalar(root, "apiVersion")
	group, _, _ := strings.Cut(apiVersion, "/")
	return kind, kind != "" && kind != "CustomResourceDefinition" && apiVersion != "" && group != apiextensionsv1.GroupName
}

// checkKind refuses everything but a CRD of the version that is served.
func (c chunk) checkKind(root *yaml.Node) error {
	const only = "only CustomResourceDefinitions can be given"
	kind, apiVersion := scalar(root, "kind"), scalar(root, "apiVersion")
	group, version, _ := strings.Cut(apiVersion, "/")
	switch {
	case kind == "":
		return c.problem(root.Line, "kind", "is missing: "+only)
	case kind != "CustomResourceDefinition":
		return c.problem(lineOf(root, "kind"), "kind", fmt.Sprintf("found %q: %s", kind, only))
	case apiVersion == "":
		return c.problem(root.Line, "apiVersion", "is missing: write "+apiextensionsv1.SchemeGroupVersion.String())
	case group == apiextensionsv1.GroupName && version == "v1beta1":
		return c.problem(lineOf(root, "apiVersion"), "apiVersion",
			fmt.Sprintf("%s is no longer served: convert to %s", apiVersion, apiextensionsv1.SchemeGroupVersion))
	case apiVersion != apiextensionsv1.SchemeGroupVersion.String():
		return c.problem(lineOf(root, "apiVersion"), "apiVersion",
			fmt.Sprintf("found %q: expected %s", apiVersion, apiextensionsv1.SchemeGroupVersion))
	}
	return nil
}

// syntaxProblem gives an error of the YAML parser its file and line.
func (c chunk) syntaxProblem(err error) error {
	line, message := parserError(err)
	switch {
	case strings.HasPrefix(message, "did not find expected"):
		// Here the parser means the line where the broken block begins. Its
		// predecessor, which kubectl uses, means the line before the mistake.
		if err := sigsyaml.Unmarshal(c.data, new(any)); err != nil {
			if before, _ := parserError(err); before > 0 {
				line = before + 1
			}
		}
	case line == 0 && strings.HasPrefix(message, "unknown anchor '"):
		name, _, _ := strings.Cut(strings.TrimPrefix(message, "unknown anchor '"), "'")
		line = lineAt(c.data, bytes.Index(c.data, []byte("*"+name)))
	case line == 0 && !utf8.Valid(c.data):
		line = lineAt(c.data, bytes.IndexRune(c.data, utf8.RuneError))
	}
	if bytes.Contains(c.data, []byte("{{")) {
		message += ` (a template, by its "{{": render it first)`
	}
	return c.problem(max(line, 1), "", message)
}

// parserError takes an error of a YAML parser apart. Line 0: it names none.
func parserError(err error) (line int, message string) {
	message = err.Error()
	if _, after, found := strings.Cut(message, "yaml: "); found {
		message = after
	}
	if rest, found := strings.CutPrefix(message, "line "); found {
		digits, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(digits); err == nil {
			return n, text
		}
	}
	return 0, message
}

// lineAt returns the line of an offset, or 0 for a negative one.
func lineAt(data []byte, offset int) int {
	if offset < 0 {
		return 0
	}
	return 1 + bytes.Count(data[:offset], []byte("\n"))
}

// resolve follows an alias to what it stands for. A nil node stays nil.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// child returns the key and the value of a mapping's entry, or nil.
func child(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if key := resolve(mapping.Content[i]); key.Kind == yaml.ScalarNode && key.Value == name {
			return key, mapping.Content[i+1]
		}
	}
	return nil, nil
}

// scalar returns the text of a mapping's entry, or "".
func scalar(mapping *yaml.Node, name string) string {
	_, value := child(mapping, name)
	if value = resolve(value); value == nil || value.Kind != yaml.ScalarNode || kindOf(value) == kindNull {
		return ""
	}
	return value.Value
}
