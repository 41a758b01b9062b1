package documents

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	apiopenapi "k8s.io/apiserver/pkg/endpoints/openapi"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

const gvkExtension = "x-kubernetes-group-version-kind"

// CheckNames returns an error that names the types of the schemes without an
// OpenAPI name. The upstream namer ends the process on the first of them; check
// before every use of it. In practice these are unstructured types without a group.
func CheckNames(schemes ...*runtime.Scheme) error {
	var errs []error
	for _, s := range schemes {
		for gvk := range s.AllKnownTypes() {
			if _, err := s.ToOpenAPIDefinitionName(gvk); err != nil {
				errs = append(errs, fmt.Errorf("no OpenAPI name for %v: %w", gvk, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Namer names the types of the schemes in documents and in the models of
// managed fields, those of generated and of reflected definitions alike.
func Namer(schemes ...*runtime.Scheme) (func(string) (string, spec.Extensions), error) {
	if err := CheckNames(schemes...); err != nil {
		return nil, err
	}
	name := reflected.Namer(apiopenapi.NewDefinitionNamer(schemes...).GetDefinitionName)
	return func(goName string) (string, spec.Extensions) {
		friendly, extensions := name(goName)
		return friendly, withoutInternalKinds(extensions)
	}, nil
}

// withoutInternalKinds drops the internal version from the kinds of a type: a
// hub type is registered under it too, and clients never see it.
func withoutInternalKinds(extensions spec.Extensions) spec.Extensions {
	kinds, ok := extensions[gvkExtension].([]any)
	if !ok {
		return extensions
	}
	own := maps.Clone(extensions)
	own[gvkExtension] = slices.DeleteFunc(slices.Clone(kinds), func(kind any) bool {
		m, ok := kind.(map[string]any)
		return ok && m["version"] == runtime.APIVersionInternal
	})
	return own
}

// isolated copies what the builders write to, the top-level extensions of a schema:
// definitions may be made once and shared.
func isolated(get common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		return cloneForBuilder(get(ref))
	})
}

// cloneForBuilder copies what the builders write to.
func cloneForBuilder(shared map[string]common.OpenAPIDefinition) map[string]common.OpenAPIDefinition {
	own := make(map[string]common.OpenAPIDefinition, len(shared))
	for name, d := range shared {
		d.Schema.Extensions = maps.Clone(d.Schema.Extensions)
		own[name] = d
	}
	return own
}

// ShareConfig prepares a configuration for [CloneConfig] once, for all servers: it wraps every
// schema as the builder would, which then need not copy them each time.
func ShareConfig(config *common.OpenAPIV3Config) *common.OpenAPIV3Config {
	for name, d := range config.Definitions {
		d.Schema = *builderutil.WrapRefs(&d.Schema)
		config.Definitions[name] = d
	}
	return config
}

// CloneConfig returns a configuration like a shared one, for one server that installs
// groups with it: servers fill in the Info, and the models are built from
// Definitions. Call [ReleaseConfig] when the groups are installed.
func CloneConfig(shared *common.OpenAPIV3Config) *common.OpenAPIV3Config {
	config, info := *shared, *shared.Info
	config.Info, config.Definitions = &info, cloneForBuilder(shared.Definitions)
	return &config
}

// ReleaseConfig drops what only the installation of groups needs: the definitions, and a
// function that upstream's builder leaves in the configuration, which keeps the
// builder alive with all it made.
// https://github.com/kubernetes/kube-openapi/blob/43fb72c5454a/pkg/builder3/openapi.go
func ReleaseConfig(config *common.OpenAPIV3Config) {
	config.Definitions, config.GetOperationIDAndTagsFromRoute = nil, nil
}

// narrowMetaKinds keeps, of the kinds WatchEvent and DeleteOptions, which every
// group registers, those of the document's own group version and of core/v1.
// The stock server does the same (apiserver pkg/server/routes/openapi.go).
func narrowMetaKinds(doc *spec3.OpenAPI, path string) {
	group, version, ok := groupVersion(path)
	if !ok || doc.Components == nil {
		return
	}
	for _, s := range doc.Components.Schemas {
		kinds, ok := s.Extensions[gvkExtension].([]any)
		if !ok || len(kinds) < 2 {
			continue
		}
		var kept []any
		for _, k := range kinds {
			gvk, ok := k.(map[string]any)
			if !ok || (gvk["kind"] != "WatchEvent" && gvk["kind"] != "DeleteOptions") {
				kept = kinds
				break
			}
			own := gvk["group"] == group && gvk["version"] == version
			core := gvk["group"] == "" && gvk["version"] == "v1"
			if own || core {
				kept = append(kept, k)
			}
		}
		if len(kept) > 0 {
			s.Extensions[gvkExtension] = kept
		}
	}
}

// groupVersion parses "api/v1" and "apis/apps/v1".
func groupVersion(path string) (group, version string, ok bool) {
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return "", parts[1], true
	case len(parts) == 3 && parts[0] == "apis":
		return parts[1], parts[2], true
	}
	return "", "", false
}
