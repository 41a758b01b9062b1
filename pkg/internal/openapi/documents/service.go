// Package documents serves /openapi/v2 and /openapi/v3 of a plane, built lazily:
// nothing is computed when a plane starts or when a CRD changes, and a document is
// built once, when a client first asks for it.
//
// The documents come from sources. The [Service] answers the index, If-None-Match
// and stale hashes from their tags alone and calls Build only to send a body.
// [Static] makes a source of go-restful web services; pkg/crd has one for CRDs.
//
// The stock server instead builds every document before it is ready and again
// as CRDs change, because its tags are hashes of the content.
package documents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// Service serves the documents of its sources. It starts nothing and needs no
// stopping.
type Service struct {
	cache   *Cache
	sources func() []openapi.Source

	mu  sync.Mutex
	own map[string]ownEntry // by path; v2Path for v2
}

// ownEntry is the entry of a document that only this service has.
type ownEntry struct {
	tag   string
	entry *entry
}

// v2Path is the path of the v2 document; no v3 document has it.
const v2Path = "/v2"

// NewService returns the service of the sources; the function is called for every
// request. Planes that share a cache share the bytes of their static documents;
// nil: a cache of its own.
func NewService(cache *Cache, sources func() []openapi.Source) *Service {
	if cache == nil {
		cache = &Cache{}
	}
	return &Service{cache: cache, sources: sources, own: map[string]ownEntry{}}
}

// document is the document at one path, from one or several sources.
type document struct {
	path   string
	tag    string
	shared bool
	// failed is the HTTP status when build fails.
	failed int
	// build makes the JSON, toProtobuf turns it into protobuf.
	build      func(context.Context) ([]byte, error)
	toProtobuf func([]byte) ([]byte, error)
}

// documents returns the v3 documents by path. The error says which sources could
// not list theirs; the documents of the others come with it.
func (s *Service) documents(ctx context.Context) (map[string]document, error) {
	parts := map[string][]openapi.Document{}
	var errs []error
	for _, source := range s.sources() {
		list, err := source.Documents(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, d := range list {
			parts[d.Path] = append(parts[d.Path], d)
		}
	}
	documents := make(map[string]document, len(parts))
	for path, p := range parts {
		documents[path] = s.document(path, p)
	}
	err := errors.Join(errs...)
	if err == nil {
		s.forget(documents)
	}
	return documents, err
}

func (s *Service) document(path string, parts []openapi.Document) document {
	d := document{path: path, shared: true, failed: http.StatusInternalServerError, toProtobuf: handler3.ToV3ProtoBinary}
	words := []string{s.cache.fingerprint(), path}
	for _, p := range parts {
		words = append(words, p.Tag)
		d.shared = d.shared && p.Shared
	}
	d.tag = openapi.Digest(words...)
	d.build = func(ctx context.Context) ([]byte, error) {
		if len(parts) == 1 && parts[0].JSON != nil {
			return parts[0].JSON(ctx)
		}
		built := make([]*spec3.OpenAPI, 0, len(parts))
		for _, p := range parts {
			b, err := p.Build(ctx)
			if err != nil {
				return nil, err
			}
			built = append(built, b)
		}
		return json.Marshal(mergeV3(built))
	}
	return d
}

// v2 returns the OpenAPI v2 document.
func (s *Service) v2(ctx context.Context) (document, error) {
	d := document{path: v2Path, shared: true, failed: http.StatusServiceUnavailable, toProtobuf: handler.ToProtoBinary}
	words := []string{s.cache.fingerprint(), v2Path}
	var parts []openapi.Swagger
	for _, source := range s.sources() {
		p, err := source.V2(ctx)
		if err != nil {
			return document{}, err
		}
		if p.Build == nil {
			continue
		}
		parts = append(parts, p)
		words = append(words, p.Tag)
		d.shared = d.shared && p.Shared
	}
	d.tag = openapi.Digest(words...)
	d.build = func(ctx context.Context) ([]byte, error) { return buildV2(ctx, parts) }
	return d, nil
}

func buildV2(ctx context.Context, parts []openapi.Swagger) ([]byte, error) {
	// Without any source the document is empty, but valid.
	built := []*spec.Swagger{}
	for _, p := range parts {
		b, err := p.Build(ctx)
		if err != nil {
			return nil, err
		}
		built = append(built, b)
	}
	if len(built) == 0 {
		built = append(built, &spec.Swagger{SwaggerProps: spec.SwaggerProps{
			Swagger: "2.0",
			Info:    &spec.Info{InfoProps: spec.InfoProps{Title: "Kubernetes", Version: "unversioned"}},
			Paths:   &spec.Paths{},
		}})
	}
	merged, err := MergeV2(built)
	if err != nil {
		return nil, err
	}
	return merged.MarshalJSON()
}

// bytes returns the document in one encoding, and builds it at the first request.
func (s *Service) bytes(ctx context.Context, d document, protobuf bool) ([]byte, error) {
	e := s.entry(d)
	asJSON := func() ([]byte, error) {
		return e.json.get(func() ([]byte, error) { return d.build(ctx) })
	}
	if !protobuf {
		return asJSON()
	}
	return e.protobuf.get(func() ([]byte, error) {
		data, err := asJSON()
		if err != nil {
			return nil, err
		}
		data, err = d.toProtobuf(data)
		if err != nil {
			return nil, fmt.Errorf("encode as protobuf: %w", err)
		}
		return data, nil
	})
}

func (s *Service) entry(d document) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.shared {
		delete(s.own, d.path)
		return s.cache.entry(d.path + "\n" + d.tag)
	}
	if own, ok := s.own[d.path]; ok && own.tag == d.tag {
		return own.entry
	}
	e := &entry{}
	s.own[d.path] = ownEntry{tag: d.tag, entry: e}
	return e
}

// forget drops the bytes of documents that are gone or have changed.
func (s *Service) forget(documents map[string]document) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, own := range s.own {
		if path != v2Path && documents[path].tag != own.tag {
			delete(s.own, path)
		}
	}
}
