package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	openapiaggregator "k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/documents"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// readIndex reads which OpenAPI v3 documents the server has. One without keeps those that it
// had.
func (s *server) readIndex(ctx context.Context, now *state) {
	header := http.Header{"Accept": {"application/json"}}
	if s.indexETag != "" {
		header.Set("If-None-Match", s.indexETag)
	}
	response, _, err := s.get(ctx, "/openapi/v3", header)
	if err != nil {
		return // the next check of its health tells
	}
	defer response.Body.Close()
	var index handler3.OpenAPIV3Discovery
	if response.StatusCode != http.StatusOK || decode(response.Body, &index) != nil {
		return
	}
	now.documents = map[string]string{}
	for path, at := range index.Paths {
		if u, err := url.Parse(at.ServerRelativeURL); err == nil {
			now.documents[path] = u.Query().Get("hash")
		}
	}
	s.indexETag = response.Header.Get("Etag")
}

// source has the OpenAPI documents of other servers.
type source struct{ remotes *remotes }

// Documents implements openapi.Source.
func (d source) Documents(context.Context) ([]openapi.Document, error) {
	var all []openapi.Document
	for gv, r := range *d.remotes.routes.Load() {
		path := strings.TrimPrefix(pathOf(gv), "/")
		hash, ok := r.server.state.Load().documents[path]
		if !ok {
			continue
		}
		all = append(all, openapi.Document{
			Path: path, Tag: openapi.Digest(r.server.String(), hash),
			JSON: func(ctx context.Context) ([]byte, error) { return r.server.document(ctx, "/openapi/v3/"+path) },
			Build: func(ctx context.Context) (*spec3.OpenAPI, error) {
				content, err := r.server.document(ctx, "/openapi/v3/"+path)
				if err != nil {
					return nil, err
				}
				document := &spec3.OpenAPI{}
				return document, json.Unmarshal(content, document)
			},
		})
	}
	return all, nil
}

// document reads a document of the server.
func (s *server) document(ctx context.Context, path string) ([]byte, error) {
	if err := s.state.Load().err; err != nil {
		return nil, fmt.Errorf("server %s is not available: %w", s, err)
	}
	response, url, err := s.get(ctx, path, http.Header{"Accept": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, &statusError{url, response.StatusCode}
	}
	content, err := io.ReadAll(response.Body)
	if err == nil && len(content) >= maxDocument {
		err = fmt.Errorf("%s has more than %d MiB", url, maxDocument>>20)
	}
	return content, err
}

// V2 implements openapi.Source. Documents are merged in the order of the servers' names. One
// that cannot be read or merged is left out, and the log says of which server.
func (d source) V2(context.Context) (openapi.Swagger, error) {
	versions := map[*server][]schema.GroupVersion{}
	for gv, r := range *d.remotes.routes.Load() {
		versions[r.server] = append(versions[r.server], gv)
	}
	if len(versions) == 0 {
		return openapi.Swagger{}, nil
	}
	servers := slices.SortedFunc(maps.Keys(versions), func(a, b *server) int { return strings.Compare(a.String(), b.String()) })
	var words []string
	for _, s := range servers {
		words = append(words, s.String(), s.tag(versions[s]))
	}
	return openapi.Swagger{Tag: openapi.Digest(words...), Build: func(ctx context.Context) (*spec.Swagger, error) {
		parts := make([]*spec.Swagger, len(servers))
		var reading sync.WaitGroup
		for i, s := range servers {
			reading.Go(func() {
				var err error
				if parts[i], err = s.readSwagger(ctx, versions[s]); err != nil {
					klog.FromContext(ctx).Error(err, "Left the OpenAPI v2 of a server out", "server", s.String())
				}
			})
		}
		reading.Wait()
		merged := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Swagger: "2.0", Paths: &spec.Paths{}}}
		for i, part := range parts {
			if part == nil {
				continue
			}
			next, err := documents.MergeV2([]*spec.Swagger{merged, part})
			if err != nil {
				klog.FromContext(ctx).Error(err, "Left the OpenAPI v2 of a server out", "server", servers[i].String())
				continue
			}
			merged = next
		}
		return merged, nil
	}}, nil
}

// tag changes with what the server's OpenAPI says of group versions, and with whether it can
// be read.
func (s *server) tag(all []schema.GroupVersion) string {
	now := s.state.Load()
	words := []string{fmt.Sprint(now.err == nil)}
	for _, gv := range all {
		words = append(words, gv.String()+now.documents[strings.TrimPrefix(pathOf(gv), "/")])
	}
	slices.Sort(words)
	return openapi.Digest(words...)
}

// swagger is the OpenAPI v2 that was read last, of the group versions that are used.
type swagger struct {
	mu  sync.Mutex
	tag string
	all *spec.Swagger
}

// readSwagger returns the server's OpenAPI v2 of group versions, with nothing else in it.
func (s *server) readSwagger(ctx context.Context, all []schema.GroupVersion) (_ *spec.Swagger, err error) {
	s.swagger.mu.Lock()
	defer s.swagger.mu.Unlock()
	tag := s.tag(all)
	if s.swagger.tag == tag {
		return s.swagger.all, nil
	}
	content, err := s.document(ctx, "/openapi/v2")
	if err != nil {
		return s.swagger.all, err // what it was is better than nothing
	}
	read := &spec.Swagger{}
	if err := json.Unmarshal(content, read); err != nil {
		return nil, err
	}
	if read.Paths == nil || read.Swagger != "2.0" {
		return nil, errors.New("it is no OpenAPI v2")
	}
	var prefixes []string
	for _, gv := range all {
		prefixes = append(prefixes, pathOf(gv)+"/")
	}
	filtered := openapiaggregator.FilterSpecByPathsWithoutSideEffects(read, prefixes)
	s.swagger.tag, s.swagger.all = tag, filtered
	return filtered, nil
}
