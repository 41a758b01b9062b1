package meta

import (
	"maps"

	"k8s.io/kube-openapi/pkg/common"
)

// And joins the definitions of this package and those of a group.
func And(more ...common.GetOpenAPIDefinitions) common.GetOpenAPIDefinitions {
	return func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := Definitions(ref)
		for _, m := range more {
			maps.Copy(all, m(ref))
		}
		return all
	}
}
