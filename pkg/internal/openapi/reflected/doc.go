// Package reflected builds OpenAPI definitions from Go types by reflection, so that the author of an API runs no
// generator but deepcopy-gen.
//
// [Build] walks everything reachable from a few root types and gives what openapi-gen would have generated
// (https://github.com/kubernetes/kube-openapi, pkg/generators), as far as the types alone can tell:
//
//   - property names, "required" and defaults come from the json tags and the Go kinds;
//   - the methods openapi-gen knows are honoured: OpenAPISchemaType with OpenAPISchemaFormat, OpenAPIV3OneOfTypes,
//     OpenAPIDefinition, OpenAPIV3Definition and OpenAPIModelName;
//   - the struct tags patchStrategy and patchMergeKey become list types for server-side apply;
//   - SwaggerDoc gives the descriptions.
//
// Comments do not exist at run time, so what markers like +listType, +optional or +enum would say comes from an
// [Option] or stays unsaid.
//
// Where openapi-gen and encoding/json disagree, the schema describes what is on the wire. Interfaces and types with
// their own MarshalJSON are arbitrary values (openapi-gen: an object, or the Go fields), types with MarshalText are
// strings, omitzero makes a field optional like omitempty does, and so does an embedded pointer.
package reflected
