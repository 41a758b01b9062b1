package controlplane

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kube-openapi/pkg/builder3"
	openapi "k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// codecs is how the objects of one API travel and how they are kept.
type codecs struct {
	scheme *runtime.Scheme
	// wire is what clients may send and get.
	wire runtime.NegotiatedSerializer
	// stored encodes to the first version and decodes to the internal one.
	stored runtime.Codec
	// storedAs is the version objects are kept in.
	storedAs runtime.GroupVersioner
}

func (a *API) buildCodecs() (*codecs, error) {
	scheme, err := a.scheme()
	if err != nil {
		return nil, err
	}
	factory := serializer.NewCodecFactory(scheme,
		serializer.WithStreamingCollectionEncodingToJSON(),
		serializer.WithStreamingCollectionEncodingToProtobuf())
	c := &codecs{scheme: scheme, wire: upstream.LeanLists(factory)}
	mediaType := runtime.ContentTypeProtobuf
	if !a.config.Protobuf {
		c.wire = withoutProtobuf{c.wire}
		mediaType = runtime.ContentTypeJSON
	}
	c.stored, c.storedAs, err = serverstorage.NewStorageCodec(serverstorage.StorageCodecConfig{
		StorageMediaType:  mediaType,
		StorageSerializer: factory,
		StorageVersion:    schema.GroupVersion{Group: a.group, Version: a.versions[0]},
		MemoryVersion:     schema.GroupVersion{Group: a.group, Version: runtime.APIVersionInternal},
	})
	if err != nil {
		return nil, fmt.Errorf("group %q: storage codec: %w", a.group, err)
	}
	return c, nil
}

// withoutProtobuf neither takes nor offers protobuf: a type without protobuf
// methods cannot be encoded in it, and a client that asks for it must get the error
// early.
type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (s withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	var kept []runtime.SerializerInfo
	for _, info := range s.NegotiatedSerializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeProtobuf {
			kept = append(kept, info)
		}
	}
	return kept
}

// typeConverter turns objects into the typed values that managed fields are
// computed on. Its models are built at the first write, once per process.
func (a *API) typeConverter() managedfields.TypeConverter { return lazyConverter{a} }

type lazyConverter struct{ api *API }

func (l lazyConverter) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	c, err := l.api.converter()
	if err != nil {
		return nil, err
	}
	return c.ObjectToTyped(obj, opts...)
}

func (l lazyConverter) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	c, err := l.api.converter()
	if err != nil {
		return nil, err
	}
	return c.TypedToObject(v)
}

func (a *API) buildConverter() (managedfields.TypeConverter, error) {
	scheme, err := a.scheme()
	if err != nil {
		return nil, err
	}
	definitions, err := a.definitions()
	if err != nil {
		return nil, fmt.Errorf("group %q: openapi definitions: %w", a.group, err)
	}
	namer, err := documents.Namer(scheme)
	if err != nil {
		return nil, fmt.Errorf("group %q: %w", a.group, err)
	}
	config := &openapi.OpenAPIV3Config{GetDefinitions: definitions, GetDefinitionName: namer}
	config.Definitions = definitions(func(name string) spec.Ref {
		friendly, _ := config.GetDefinitionName(name)
		return spec.MustCreateRef("#/components/schemas/" + openapi.EscapeJsonPointer(friendly))
	})
	models, err := builder3.BuildOpenAPIDefinitionsForResources(config, modelNames(scheme, config.Definitions)...)
	if err != nil {
		return nil, fmt.Errorf("group %q: openapi models: %w", a.group, err)
	}
	return managedfields.NewTypeConverter(models, false)
}

// modelNames are the OpenAPI names of the types in the scheme that have a
// definition: the group's own and those of its sub-resources, such as
// autoscaling/v1 Scale.
func modelNames(scheme *runtime.Scheme, defined map[string]openapi.OpenAPIDefinition) []string {
	var names []string
	for gvk := range scheme.AllKnownTypes() {
		obj, err := scheme.New(gvk)
		if err != nil || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		name := openapiutil.GetCanonicalTypeName(obj)
		if _, ok := defined[name]; ok {
			names = append(names, name)
		}
	}
	return names
}
