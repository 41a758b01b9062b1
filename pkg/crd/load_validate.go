package crd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate checks a CRD as the server will when it is created, CEL rules aside,
// and returns its name.
func (c chunk) validate(root *yaml.Node, body []byte) (string, error) {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := utiljson.Unmarshal(body, &crd); err != nil {
		// The shape was checked: what is left are numbers out of range and texts
		// that are no base64 or no date.
		path := ""
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			path = wrong.Field
		}
		return "", c.problem(lineOf(root, path), path, err.Error())
	}
	apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(&crd)
	var internal apiextensions.CustomResourceDefinition
	err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&crd, &internal, nil)
	if err != nil {
		return "", c.problem(root.Line, "", err.Error())
	}
	prepare(&internal)

	var errs []error
	// Only the CEL rules, which are gone, could take long enough to cancel them.
	for _, e := range validation.ValidateCustomResourceDefinition(context.Background(), &internal) {
		if strings.HasPrefix(e.Field, "status.") {
			continue // prepare made the status out of the spec, which has an error of its own
		}
		path := published(e.Field)
		errs = append(errs, c.problem(lineOf(root, path), path, describe(e)))
	}
	return crd.Name, errors.Join(errs...)
}

// prepare brings a CRD into the state in which the server validates it.
func prepare(crd *apiextensions.CustomResourceDefinition) {
	crd.Status = apiextensions.CustomResourceDefinitionStatus{}
	for i, v := range crd.Spec.Versions {
		if v.Storage && len(crd.Status.StoredVersions) == 0 {
			crd.Status.StoredVersions = []string{v.Name}
		}
		if v.Schema != nil {
			dropRules(crd.Spec.Versions[i].Schema.OpenAPIV3Schema)
		}
	}
	if crd.Spec.Validation != nil {
		dropRules(crd.Spec.Validation.OpenAPIV3Schema)
	}
}

// dropRules removes the CEL rules of a schema. Compiling them takes ten times as
// long as everything else here, and the server does it again.
func dropRules(s *apiextensions.JSONSchemaProps) {
	if s == nil {
		return
	}
	s.XValidations = nil
	for name, property := range s.Properties {
		dropRules(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		dropRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		dropRules(s.AdditionalProperties.Schema)
	}
}

// describe says what is wrong without the value where that is an object: it
// stands in the file, and a schema fills a screen.
func describe(e *field.Error) string {
	switch reflect.ValueOf(e.BadValue).Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		if e.Type == field.ErrorTypeInvalid && e.Detail != "" {
			return fmt.Sprintf("%s: %s", e.Type, e.Detail)
		}
	}
	return e.ErrorBody()
}
