package crd

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// validate checks a CRD as the server will when it is created, CEL rules aside,
// and returns its name. It changes content.
func (o *object) validate(content map[string]any) (name string) {
	dropRules(content)
	body, err := json.Marshal(content)
	var crd apiextensions.CustomResourceDefinition
	if err == nil {
		err = runtime.DecodeInto(apiextensionsserver.Codecs.UniversalDecoder(), body, &crd)
	}
	if err != nil {
		path := "" // read has checked all but numbers out of range and texts that are no base64
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			path = wrong.Field
		}
		o.problem(path, err.Error())
		return ""
	}
	for _, v := range crd.Spec.Versions {
		if v.Storage && len(crd.Status.StoredVersions) == 0 {
			crd.Status.StoredVersions = []string{v.Name}
		}
	}
	// Only the CEL rules, which are gone, could take long enough to cancel them.
	for _, e := range validation.ValidateCustomResourceDefinition(context.Background(), &crd) {
		switch reflect.ValueOf(e.BadValue).Kind() {
		case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
			e.BadValue = field.OmitValueType{} // it stands in the file, and a schema fills a screen
		}
		if !strings.HasPrefix(e.Field, "status.") { // made out of the spec, which has an error of its own
			o.problem(published(e.Field), e.ErrorBody())
		}
	}
	return crd.Name
}

// dropRules removes the CEL rules of all schemas in value. Compiling them takes
// ten times as long as everything else here, and the server does it again.
func dropRules(value any) {
	switch value := value.(type) {
	case map[string]any:
		delete(value, "x-kubernetes-validations")
		for _, v := range value {
			dropRules(v)
		}
	case []any:
		for _, v := range value {
			dropRules(v)
		}
	}
}

// published turns a path of the internal form of a CRD, which errors of
// validation use, into one of the published form: what all versions agree on
// stands in the former only once, above them. Names in brackets become fields.
func published(path string) string {
	path = regexp.MustCompile(`\[([^\]]*[^\]0-9][^\]]*)\]`).ReplaceAllString(path, ".$1")
	for _, f := range [...][2]string{
		{"spec.validation", "spec.versions[0].schema"},
		{"spec.subresources", "spec.versions[0].subresources"},
		{"spec.additionalPrinterColumns", "spec.versions[0].additionalPrinterColumns"},
		{"spec.selectableFields", "spec.versions[0].selectableFields"},
		{"spec.version", "spec.versions[0].name"},
	} {
		rest, found := strings.CutPrefix(path, f[0])
		if found && (rest == "" || rest[0] == '.' || rest[0] == '[') {
			return f[1] + rest
		}
	}
	return path
}
