package documents

import (
	"fmt"
	"maps"

	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// mergeV3 makes one document of several; the first one wins conflicts, as it wins
// requests that both could serve. No document is modified, but the result shares
// their data.
func mergeV3(docs []*spec3.OpenAPI) *spec3.OpenAPI {
	if len(docs) == 1 {
		return docs[0]
	}
	merged := *docs[0]
	paths := &spec3.Paths{Paths: map[string]*spec3.Path{}}
	components := &spec3.Components{Schemas: map[string]*spec.Schema{}}
	if merged.Paths != nil {
		paths.VendorExtensible = merged.Paths.VendorExtensible
	}
	for _, d := range docs {
		if d.Paths != nil {
			paths.Paths = withMissing(paths.Paths, d.Paths.Paths)
		}
		if c := d.Components; c != nil {
			components.Schemas = withMissing(components.Schemas, c.Schemas)
			components.SecuritySchemes = withMissing(components.SecuritySchemes, c.SecuritySchemes)
			components.Responses = withMissing(components.Responses, c.Responses)
			components.Parameters = withMissing(components.Parameters, c.Parameters)
			components.Examples = withMissing(components.Examples, c.Examples)
			components.RequestBodies = withMissing(components.RequestBodies, c.RequestBodies)
			components.Links = withMissing(components.Links, c.Links)
			components.Headers = withMissing(components.Headers, c.Headers)
		}
	}
	merged.Paths, merged.Components = paths, components
	return &merged
}

// withMissing adds what a map does not have to it, and returns it.
func withMissing[M ~map[string]V, V any](to, from M) M {
	if to == nil && len(from) > 0 {
		to = make(M, len(from))
	}
	for k, v := range from {
		if _, found := to[k]; !found {
			to[k] = v
		}
	}
	return to
}

// MergeV2 makes one document of several. The first one wins paths, definitions
// that differ are renamed, and the kinds of equal ones are joined. No document
// is modified, but the result shares their data.
func MergeV2(docs []*spec.Swagger) (*spec.Swagger, error) {
	if len(docs) == 1 {
		return docs[0], nil
	}
	merged := ownV2(docs[0])
	for _, d := range docs[1:] {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, ownV2(d)); err != nil {
			return nil, fmt.Errorf("merge: %w", err)
		}
	}
	return merged, nil
}

// ownV2 copies what the upstream merge writes to. It writes to the extensions
// of definitions even where there are none, so all get a map.
func ownV2(s *spec.Swagger) *spec.Swagger {
	own := *s
	own.Parameters = maps.Clone(s.Parameters)
	if s.Paths != nil {
		paths := *s.Paths
		paths.Paths = maps.Clone(s.Paths.Paths)
		own.Paths = &paths
	}
	own.Definitions = make(spec.Definitions, len(s.Definitions))
	for name, d := range s.Definitions {
		extensions := make(spec.Extensions, len(d.Extensions))
		maps.Copy(extensions, d.Extensions)
		d.Extensions = extensions
		own.Definitions[name] = d
	}
	return &own
}
