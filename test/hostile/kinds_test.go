package hostile

import "fmt"

// kind is a resource that the rows common to all resources are sent to.
type kind struct {
	plural     string
	collection string // path
	apiVersion string
	name       string // the kind
	kept       string // an object that exists
	fresh      string // a name that is free
	namespaced bool
	spec       string // what a valid object has besides metadata, with a leading comma
	freshSpec  string // the same where it depends on the name

	protobuf  bool // has a protobuf form
	strategic bool // knows strategic merge patches
	custom    bool // a custom resource
	many      bool // knows deletecollection
}

// object is a valid object of the kind as JSON, with more in its metadata and
// beside it, each with a leading comma.
func (k kind) object(name, metadata, top string) string {
	namespace := ""
	if k.namespaced {
		namespace = `,"namespace":"hostile"`
	}
	spec := k.spec
	if name != k.kept && k.freshSpec != "" {
		spec = k.freshSpec
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q%s%s}%s%s}`,
		k.apiVersion, k.name, name, namespace, metadata, spec, top)
}

func (k kind) one() string { return k.collection + "/" + k.kept }

var (
	namespaces = kind{
		plural: "namespaces", collection: "/api/v1/namespaces", apiVersion: "v1", name: "Namespace",
		kept: "hostile", fresh: "fresh", protobuf: true, strategic: true,
	}
	configMaps = kind{
		plural: "configmaps", collection: "/api/v1/namespaces/hostile/configmaps", apiVersion: "v1", name: "ConfigMap",
		kept: "kept", fresh: "fresh", namespaced: true, spec: `,"data":{"a":"b"}`, protobuf: true, strategic: true, many: true,
	}
	secrets = kind{
		plural: "secrets", collection: "/api/v1/namespaces/hostile/secrets", apiVersion: "v1", name: "Secret",
		kept: "kept", fresh: "fresh", namespaced: true, spec: `,"data":{"a":"Yg=="}`, protobuf: true, strategic: true, many: true,
	}
	melons = kind{
		plural: "melons", collection: "/apis/garden.example.com/v1/namespaces/hostile/melons",
		apiVersion: "garden.example.com/v1", name: "Melon", kept: "kept", fresh: "fresh", namespaced: true,
		spec: `,"spec":{"weight":3,"seeds":[{"name":"one","count":1}]}`, strategic: true,
	}
	definitions = kind{
		plural: "customresourcedefinitions", collection: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		apiVersion: "apiextensions.k8s.io/v1", name: "CustomResourceDefinition",
		kept: "gourds.hostile.example.com", fresh: "squashes.hostile.example.com", protobuf: true, strategic: true, many: true,
		spec: definitionSpec("gourds", "Gourd", gourdSchema), freshSpec: definitionSpec("squashes", "Squash", gourdSchema),
	}
	gourds = kind{
		plural: "gourds", collection: "/apis/hostile.example.com/v1/namespaces/hostile/gourds",
		apiVersion: "hostile.example.com/v1", name: "Gourd", kept: "kept", fresh: "fresh", namespaced: true,
		spec: `,"spec":{"min":1,"max":2}`, custom: true, many: true,
	}
)

// kinds are all kinds, each after what it needs.
func kinds() []kind {
	return []kind{namespaces, configMaps, secrets, melons, definitions, gourds}
}

// definitionSpec is the spec of a CRD, with a leading comma.
func definitionSpec(plural, name, schema string) string {
	return fmt.Sprintf(`,"spec":{"group":"hostile.example.com","scope":"Namespaced","names":{"plural":%q,"kind":%q},`+
		`"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},"schema":{"openAPIV3Schema":%s}}]}`, plural, name, schema)
}

const gourdSchema = `{"type":"object","properties":{` +
	`"spec":{"type":"object","properties":{"min":{"type":"integer"},"max":{"type":"integer"},"list":{"type":"array","maxItems":10,"items":{"type":"string","maxLength":20}}},` +
	`"x-kubernetes-validations":[{"rule":"!has(self.min) || !has(self.max) || self.min <= self.max","message":"min must not exceed max"}]},` +
	`"status":{"type":"object","properties":{"ripe":{"type":"boolean"}}}}}`
