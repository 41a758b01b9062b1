package crd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// openAPISource gives the OpenAPI documents of the established CRDs: one for
// each served group version, and all of them together for OpenAPI v2.
//
// It keeps nothing but the lister. The object tree of one CRD version is some
// 200 KiB of heap and 1 to 3 ms to build, less than encoding it takes, so only
// the encoded document is worth keeping; the documents.Service does, for as long
// as the tag stands.
type openAPISource struct {
	lister  listers.CustomResourceDefinitionLister
	checked func() error
}

var _ openapi.Source = (*openAPISource)(nil)

// newOpenAPISource returns the source over a synced lister. In a service it
// comes after the static sources, which win conflicts.
func newOpenAPISource(lister listers.CustomResourceDefinitionLister) *openAPISource {
	return &openAPISource{
		lister: lister,
		// The builder names types of client-go's scheme, which others may add to,
		// with a namer that ends the process on a bad name.
		checked: sync.OnceValue(func() error { return documents.CheckNames(scheme.Scheme) }),
	}
}

// crdVersion is one served version of an established CRD.
type crdVersion struct {
	crd     *apiextensionsv1.CustomResourceDefinition
	version string
}

// served lists the served versions, sorted by CRD name and then in the CRD's
// own order.
func (s *openAPISource) served() ([]crdVersion, error) {
	crds, err := s.lister.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list CRDs for OpenAPI: %w", err)
	}
	slices.SortFunc(crds, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) })
	var served []crdVersion
	for _, crd := range crds {
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Served {
				served = append(served, crdVersion{crd: crd, version: v.Name})
			}
		}
	}
	return served, nil
}

// openAPITag changes when a CRD comes, goes or changes: a document is made of the
// spec alone, and every change of it makes a new generation.
func openAPITag(versions []crdVersion) string {
	words := make([]string, 0, 4*len(versions))
	for _, v := range versions {
		words = append(words, v.crd.Name, string(v.crd.UID), strconv.FormatInt(v.crd.Generation, 10), v.version)
	}
	return openapi.Digest(words...)
}

// Documents implements openapi.Source.
func (s *openAPISource) Documents(context.Context) ([]openapi.Document, error) {
	served, err := s.served()
	if err != nil {
		return nil, err
	}
	grouped := map[schema.GroupVersion][]crdVersion{}
	for _, v := range served {
		gv := schema.GroupVersion{Group: v.crd.Spec.Group, Version: v.version}
		grouped[gv] = append(grouped[gv], v)
	}
	documents := make([]openapi.Document, 0, len(grouped))
	for gv, versions := range grouped {
		documents = append(documents, openapi.Document{
			Path: "apis/" + gv.Group + "/" + gv.Version,
			Tag:  openAPITag(versions),
			Build: func(ctx context.Context) (*spec3.OpenAPI, error) {
				return s.buildV3(ctx, versions)
			},
		})
	}
	slices.SortFunc(documents, func(a, b openapi.Document) int { return cmp.Compare(a.Path, b.Path) })
	return documents, nil
}

// V2 implements openapi.Source.
func (s *openAPISource) V2(context.Context) (openapi.Swagger, error) {
	served, err := s.served()
	if err != nil || len(served) == 0 {
		return openapi.Swagger{}, err
	}
	return openapi.Swagger{Tag: openAPITag(served), Build: func(ctx context.Context) (*spec.Swagger, error) {
		return s.buildV2(ctx, served)
	}}, nil
}

func (s *openAPISource) buildV3(ctx context.Context, versions []crdVersion) (*spec3.OpenAPI, error) {
	docs, err := buildEachVersion(ctx, s, versions, builder.BuildOpenAPIV3, openAPIOptions(false))
	if err != nil {
		return nil, err
	}
	return builder.MergeSpecsV3(docs...)
}

func (s *openAPISource) buildV2(ctx context.Context, versions []crdVersion) (*spec.Swagger, error) {
	docs, err := buildEachVersion(ctx, s, versions, builder.BuildOpenAPIV2, openAPIOptions(true))
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		// The static document, which this is merged with, has no defaults.
		d.Definitions = handler.PruneDefaults(d.Definitions)
	}
	head := *docs[0]
	head.Paths, head.Definitions, head.Parameters = nil, nil, nil
	return builder.MergeSpecs(&head, docs...)
}

// openAPIOptions are those of the stock controllers. Schemas that are not
// structural become plain objects; in v2 also those that keep unknown fields,
// because kubectl would refuse what they do not name.
func openAPIOptions(v2 bool) builder.Options {
	return builder.Options{
		V2:                      v2,
		IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(features.CustomResourceFieldSelectors),
	}
}

// buildEachVersion builds the documents of CRD versions. Like the stock controllers it
// leaves out those that cannot be built, so that one bad CRD does not hide the
// others; it fails when none is left.
func buildEachVersion[T any](ctx context.Context, s *openAPISource, versions []crdVersion,
	build func(*apiextensionsv1.CustomResourceDefinition, string, builder.Options) (T, error), options builder.Options,
) ([]T, error) {
	if err := s.checked(); err != nil {
		return nil, err
	}
	built := make([]T, 0, len(versions))
	var errs []error
	for _, v := range versions {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		doc, err := build(v.crd, v.version, options)
		if err != nil {
			errs = append(errs, fmt.Errorf("CRD %q version %q: %w", v.crd.Name, v.version, err))
			continue
		}
		built = append(built, doc)
	}
	err := errors.Join(errs...)
	if len(built) == 0 {
		return nil, err
	}
	if err != nil {
		klog.FromContext(ctx).Error(err, "OpenAPI document is incomplete")
	}
	return built, nil
}
