package crd

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// The apiVersion and kind of a CRD.
const (
	crdAPIVersion = apiextensionsv1.GroupName + "/v1"
	crdKind       = "CustomResourceDefinition"
)

// object is one object of a document.
type object struct {
	*document  `yaml:"-"`
	APIVersion string    `yaml:"apiVersion"`
	Kind       string    `yaml:"kind"`
	Items      yaml.Node `yaml:"items"` // of a list
	root       *yaml.Node
	lines      map[string]int // by the path of a field, such as spec.versions[0].name
}

// isOther tells whether the object belongs to another API.
func (o *object) isOther() bool {
	group, _, _ := strings.Cut(o.APIVersion, "/")
	return o.Kind != "" && o.Kind != crdKind && o.APIVersion != "" && group != apiextensionsv1.GroupName
}

// line returns the line of the field at path, or of the last one on the way that
// exists: a missing field is reported where it should stand.
func (o *object) line(path string) int {
	for path != "" && o.lines[path] == 0 {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return cmp.Or(o.lines[path], o.root.Line)
}

// problem reports what is wrong with the field at path.
func (o *object) problem(path, message string) { o.document.problem(o.line(path), path, message) }

// definition checks the CRD that the object is, and returns its name and body.
func (o *object) definition() (name string, body []byte) {
	problems := len(o.problems)
	if o.check(); len(o.problems) > problems {
		return "", nil
	}
	var content map[string]any
	err := o.root.Decode(&content)
	if err == nil {
		// The server writes these: a file has them when it was dumped from a server.
		delete(content, "status")
		for _, field := range [...]string{"creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid"} {
			unstructured.RemoveNestedField(content, "metadata", field)
		}
		body, err = json.Marshal(content)
	}
	if err != nil {
		o.document.problem(undecodable(o.root), "", strings.TrimPrefix(err.Error(), "yaml: "))
		return "", nil
	}
	return o.validate(body), body
}

// check reads the object and reports what makes it no CRD.
func (o *object) check() {
	var expected spec.Schema
	if o.APIVersion == crdAPIVersion && o.Kind == crdKind {
		expected = schemas()[apiextensionsv1.CustomResourceDefinition{}.OpenAPIModelName()]
	}
	o.read(o.root, expected, "")
	for _, row := range [...][4]string{
		{"apiVersion", o.APIVersion, crdAPIVersion, ": convert other versions to it"},
		{"kind", o.Kind, crdKind, ""},
	} {
		switch field, found, want := row[0], row[1], row[2]; found {
		case want:
		case "":
			o.problem("", fmt.Sprintf("%s is missing: write %[1]s: %s", field, want))
		default:
			o.problem(field, fmt.Sprintf("expected %s, found %q%s", want, found, row[3]))
		}
	}
}

// undecodable returns the line of what keeps n from being decoded: an alias, the
// key of a merge, or else the innermost object or list.
func undecodable(n *yaml.Node) int {
	line := n.Line
	for _, child := range n.Content {
		switch {
		case child.Decode(new(any)) != nil:
			return undecodable(child)
		case child.ShortTag() == "!!merge":
			line = child.Line
		}
	}
	return line
}

// validate checks a CRD as the server will when it is created, CEL rules aside,
// and returns its name.
func (o *object) validate(body []byte) (name string) {
	// Compiling the rules takes ten times as long as everything else here, and the
	// server does it again. The decoder leaves out what it does not know.
	body = bytes.ReplaceAll(body, []byte(`"x-kubernetes-validations":`), []byte(`"":`))
	var crd apiextensions.CustomResourceDefinition
	if err := runtime.DecodeInto(apiextensionsserver.Codecs.UniversalDecoder(), body, &crd); err != nil {
		path := "" // read has checked all but numbers out of range and texts that are no base64
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			path = wrong.Field
		}
		o.problem(path, err.Error())
		return ""
	}
	// Only the CEL rules, which are gone, could take long enough to cancel them.
	for _, e := range validation.ValidateCustomResourceDefinition(context.Background(), &crd) {
		switch reflect.ValueOf(e.BadValue).Kind() {
		case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
			e.BadValue = field.OmitValueType{} // it stands in the file, and a schema fills a screen
		}
		if !strings.HasPrefix(e.Field, "status.") { // the server writes it
			o.problem(published(e.Field), e.ErrorBody())
		}
	}
	return crd.Name
}

// published turns a path of the internal form of a CRD, which errors of
// validation use, into one of the published form: fields that all versions share
// are in the former only once, above the versions. Names in brackets become fields.
func published(path string) string {
	path = regexp.MustCompile(`\[([^\]]*[^\]0-9][^\]]*)\]`).ReplaceAllString(path, ".$1")
	shared := regexp.MustCompile(`^spec\.(validation|subresources|additionalPrinterColumns|selectableFields|version)\b`)
	path = shared.ReplaceAllString(path, "spec.versions[0].$1")
	path = strings.Replace(path, "spec.versions[0].validation", "spec.versions[0].schema", 1)
	return strings.Replace(path, "spec.versions[0].version", "spec.versions[0].name", 1)
}
