package planetest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/crd"
)

// Source is where objects come from: [YAML], [Files], [FS] or [Objects].
type Source func(*runtime.Scheme) ([]sourced, error)

// sourced is an object and where it comes from.
type sourced struct {
	*unstructured.Unstructured
	from string
}

// YAML are the objects of a text, in any number of documents, of YAML or JSON.
func YAML(text string) Source {
	return func(*runtime.Scheme) ([]sourced, error) { return decode("text", []byte(text)) }
}

// Files are the objects of files, named by paths or patterns of
// [filepath.Glob]. A pattern that matches nothing is an error.
func Files(patterns ...string) Source {
	return func(*runtime.Scheme) ([]sourced, error) {
		var all []sourced
		for _, pattern := range patterns {
			names, err := filepath.Glob(pattern)
			if err == nil && len(names) == 0 {
				err = errors.New("no such file")
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", pattern, err)
			}
			for _, name := range names {
				data, err := os.ReadFile(name) //nolint:gosec // a test says what it reads
				if err != nil {
					return nil, err
				}
				objects, err := decode(name, data)
				if err != nil {
					return nil, err
				}
				all = append(all, objects...)
			}
		}
		return all, nil
	}
}

// FS are the objects of all *.yaml, *.yml and *.json files of a file system, in
// lexical order.
func FS(fsys fs.FS) Source {
	return func(*runtime.Scheme) ([]sourced, error) {
		var all []sourced
		err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) {
				return err
			}
			data, err := fs.ReadFile(fsys, name)
			if err != nil {
				return err
			}
			objects, err := decode(name, data)
			all = append(all, objects...)
			return err
		})
		return all, err
	}
}

// Objects are Go values: built-in types, types of [Options.Scheme], unstructured ones,
// and others that have apiVersion and kind.
func Objects(objects ...runtime.Object) Source {
	return func(s *runtime.Scheme) ([]sourced, error) {
		var all []sourced
		for i, o := range objects {
			u, err := toUnstructured(s, o)
			if err != nil {
				return nil, fmt.Errorf("object %d: %w", i+1, err)
			}
			all = append(all, sourced{u, fmt.Sprintf("object %d", i+1)})
		}
		return all, nil
	}
}

// decode reads all documents of a file. A List is split into its items.
func decode(name string, data []byte) ([]sourced, error) {
	var all []sourced
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		from := fmt.Sprintf("%s: document %d", name, n)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		u := &unstructured.Unstructured{}
		// Strict: a key that is given twice is a mistake.
		if err := yaml.UnmarshalStrict(document, &u.Object); err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
		if len(u.Object) == 0 {
			continue // comments only
		}
		if u.GetKind() == "" || u.GetAPIVersion() == "" {
			return nil, fmt.Errorf("%s: apiVersion or kind is missing", from)
		}
		if !u.IsList() {
			all = append(all, sourced{u, from})
			continue
		}
		err = u.EachListItem(func(item runtime.Object) error {
			i, ok := item.(*unstructured.Unstructured)
			if !ok || i.GetKind() == "" || i.GetAPIVersion() == "" {
				return errors.New("apiVersion or kind is missing in an item of the list")
			}
			all = append(all, sourced{i, from})
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", from, err)
		}
	}
}

// toUnstructured converts an object whose type the scheme knows, or which has
// apiVersion and kind. The caller owns the result.
func toUnstructured(s *runtime.Scheme, o runtime.Object) (*unstructured.Unstructured, error) {
	if u, ok := o.(*unstructured.Unstructured); ok {
		return u.DeepCopy(), nil
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", o, err)
	}
	u := &unstructured.Unstructured{Object: content}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		kind, err := kindOf(s, o)
		if err != nil {
			return nil, fmt.Errorf("%T has no apiVersion and kind: set them, or start the plane with the Scheme of Options: %w", o, err)
		}
		u.SetGroupVersionKind(kind)
	}
	// Go cannot leave this field out, so it is not the author's wish.
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if status, ok := u.Object["status"].(map[string]any); ok && len(status) == 0 {
		delete(u.Object, "status")
	}
	return u, nil
}

// kindOf returns the kind of an object from the scheme, or as a CRD or a built-in type.
func kindOf(s *runtime.Scheme, o runtime.Object) (kind schema.GroupVersionKind, err error) {
	crds := runtime.NewScheme()
	if err := crd.AddToScheme(crds); err != nil {
		return kind, err
	}
	for _, known := range []*runtime.Scheme{s, crds, scheme.Scheme} {
		var kinds []schema.GroupVersionKind
		if kinds, _, err = known.ObjectKinds(o); err == nil {
			return kinds[0], nil
		}
	}
	return kind, err
}

// Object names an object, to wait for it for example: Object("example.com/v1", "Widget",
// "default/lever"), or only the name if it has no namespace or that of [Plane.In].
func Object(apiVersion, kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		u.SetNamespace(namespace)
		name = rest
	}
	u.SetName(name)
	return u
}
