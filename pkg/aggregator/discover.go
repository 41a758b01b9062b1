package aggregator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints"
	"k8s.io/client-go/discovery"
)

// discover asks the server what it serves: once for everything, where it can say that, and
// once for each group version of its APIServices that is not in there.
func (s *server) discover(ctx context.Context, now *state) error {
	all, err := s.aggregated(ctx, now)
	if err != nil {
		return err
	}
	now.failed = map[schema.GroupVersion]error{}
	for _, gv := range *s.wanted.Load() {
		if _, ok := all[gv]; ok {
			continue
		}
		one, err := s.legacy(ctx, gv)
		if err != nil {
			now.failed[gv] = err
			var said *statusError
			gone := errors.As(err, &said) && said.code == http.StatusNotFound
			if known, ok := now.found[gv]; ok && !gone {
				all[gv] = known
			}
			continue
		}
		all[gv] = one
	}
	now.found = all
	return nil
}

// aggregated reads the aggregated discovery document; of a server that has none, nothing.
func (s *server) aggregated(ctx context.Context, now *state) (map[schema.GroupVersion]resources, error) {
	header := http.Header{"Accept": {discovery.AcceptV2 + "," + "application/json"}}
	if s.etag != "" {
		header.Set("If-None-Match", s.etag)
	}
	response, url, err := s.get(ctx, "/apis", header)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	found := map[schema.GroupVersion]resources{}
	v2 := apidiscoveryv2.SchemeGroupVersion.WithKind("APIGroupDiscoveryList")
	isV2, err := discovery.ContentTypeIsGVK(response.Header.Get("Content-Type"), v2)
	switch {
	case response.StatusCode == http.StatusNotModified:
		return maps.Clone(now.found), nil
	case response.StatusCode == http.StatusServiceUnavailable:
		return nil, &statusError{url, response.StatusCode}
	case response.StatusCode != http.StatusOK || err != nil || !isV2:
		s.etag = ""
		return found, nil
	}
	var list apidiscoveryv2.APIGroupDiscoveryList
	if err := decode(response.Body, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if v.Freshness != apidiscoveryv2.DiscoveryFreshnessStale { // what it aggregates itself, and cannot reach
				found[schema.GroupVersion{Group: g.Name, Version: v.Version}] = complete(v)
			}
		}
	}
	s.etag = response.Header.Get("Etag")
	return found, nil
}

// complete has fields that clients of Kubernetes 1.26 expect
// (https://issue.k8s.io/118361).
func complete(v resources) resources {
	for i := range v.Resources {
		r := &v.Resources[i]
		if r.ResponseKind == nil {
			r.ResponseKind = &metav1.GroupVersionKind{}
		}
		for j := range r.Subresources {
			if r.Subresources[j].ResponseKind == nil {
				r.Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
			}
		}
	}
	return v
}

// legacy reads the discovery document of a group version. Any success is an answer, as in
// kube-aggregator, also without resources.
func (s *server) legacy(ctx context.Context, gv schema.GroupVersion) (resources, error) {
	found := resources{Version: gv.Version}
	response, url, err := s.get(ctx, pathOf(gv), http.Header{"Accept": {"application/json"}})
	if err != nil {
		return found, err
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusMultipleChoices {
		var said metav1.Status
		if response.StatusCode == http.StatusLoopDetected && decode(response.Body, &said) == nil {
			return found, errors.New(said.Message)
		}
		return found, &statusError{url, response.StatusCode}
	}
	var list metav1.APIResourceList
	if decode(response.Body, &list) != nil {
		return found, nil
	}
	if all, err := endpoints.ConvertGroupVersionIntoToDiscovery(list.APIResources); err == nil {
		found.Resources = all
	}
	return complete(found), nil
}

// decode reads JSON.
func decode(from io.Reader, to any) error {
	content, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	if len(content) >= maxDocument {
		return fmt.Errorf("the document has more than %d MiB", maxDocument>>20)
	}
	return json.Unmarshal(content, to)
}

// pathOf is the path of a group version.
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}

// groupVersionOf returns the group version that a path is in. What is below /api is of the
// core group, whatever its version, as in kube-aggregator.
func groupVersionOf(path string) (gv schema.GroupVersion, ok bool) {
	if path == "/api" || strings.HasPrefix(path, "/api/") {
		return schema.GroupVersion{Version: "v1"}, true
	}
	rest, ok := strings.CutPrefix(path, "/apis/")
	if !ok {
		return gv, false
	}
	group, rest, _ := strings.Cut(rest, "/")
	version, _, _ := strings.Cut(rest, "/")
	return schema.GroupVersion{Group: group, Version: version}, true
}
