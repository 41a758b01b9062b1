package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

func serverChecks() []serverCheck {
	return []serverCheck{
		{"discovery-groups", "the list of groups is complete, and prefers a version that is in it", groupsAreWhole},
		{"discovery-group", "a group by itself is as in the list of groups", groupIsAsListed},
		{"discovery-resources", "each group version lists its resources, with kinds and verbs, once each", resourcesAreListed},
		{"discovery-aggregated", "aggregated discovery has the same resources as that of group versions", aggregatedIsTheSame},
		{"discovery-etag", "aggregated discovery that the client has is not sent again", discoveryIsCached},
		{"openapi-v3-index", "OpenAPI v3 has a document for each group version", openAPIIndex},
		{"openapi-v3-kinds", "OpenAPI v3 describes the kind of each resource", openAPIKinds},
		{"openapi-v3-hash", "an OpenAPI v3 document under its hash may be kept", openAPIHash},
		{"openapi-v2-paths", "OpenAPI v2 has the paths of each resource", openAPIv2Paths},
		{"version", "the version is told", versionIsTold},
		{"health", "live and ready are told", healthIsTold},
		{"error-unknown-path", "a path of no group is 404", unknownPath},
		{"error-method", "a method that a path does not know is 405", unknownMethod},
	}
}

func (s *server) read(ctx context.Context, path string, to any) (*answer, error) {
	a, err := s.do(ctx, ask{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	if err := a.is(http.StatusOK); err != nil {
		return a, err
	}
	if json.Unmarshal(a.body, to) != nil {
		return a, a.wrong("JSON")
	}
	return a, nil
}

func groupsAreWhole(ctx context.Context, s *server) error {
	var list metav1.APIGroupList
	a, err := s.read(ctx, "/apis", &list)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, g := range list.Groups {
		if seen[g.Name] || g.Name == "" {
			return a.wrong("each group once, with a name: %q", g.Name)
		}
		seen[g.Name] = true
		if !slices.Contains(g.Versions, g.PreferredVersion) {
			return a.wrong("group %s to prefer one of its versions", g.Name)
		}
		for _, v := range g.Versions {
			if v.GroupVersion != g.Name+"/"+v.Version {
				return a.wrong("groupVersion %s/%s of group %s", g.Name, v.Version, g.Name)
			}
		}
	}
	return nil
}

func groupIsAsListed(ctx context.Context, s *server) error {
	var list metav1.APIGroupList
	if _, err := s.read(ctx, "/apis", &list); err != nil {
		return err
	}
	for _, g := range list.Groups {
		var group metav1.APIGroup
		a, err := s.read(ctx, "/apis/"+g.Name, &group)
		if err != nil {
			return err
		}
		if group.Name != g.Name || !slices.Equal(group.Versions, g.Versions) || group.PreferredVersion != g.PreferredVersion {
			return a.wrong("versions %v of %s, and %v preferred", g.Versions, g.Name, g.PreferredVersion)
		}
	}
	return nil
}

func resourcesAreListed(ctx context.Context, s *server) error {
	for _, gv := range s.versions {
		var list metav1.APIResourceList
		a, err := s.read(ctx, prefix(gv), &list)
		if err != nil {
			return err
		}
		if list.GroupVersion != gv.String() {
			return a.wrong("groupVersion %s", gv)
		}
		seen := map[string]bool{}
		for _, r := range list.APIResources {
			if seen[r.Name] || r.Kind == "" || len(r.Verbs) == 0 {
				return a.wrong("resource %s once, with a kind and verbs", r.Name)
			}
			seen[r.Name] = true
		}
	}
	return nil
}

// aggregated reads aggregated discovery, and that of the core group with it.
func aggregated(ctx context.Context, s *server, path string) (*answer, *apidiscoveryv2.APIGroupDiscoveryList, error) {
	a, err := s.do(ctx, ask{method: http.MethodGet, path: path, header: map[string]string{"Accept": discovery.AcceptV2 + "," + asJSON}})
	if err != nil {
		return nil, nil, err
	}
	list := &apidiscoveryv2.APIGroupDiscoveryList{}
	if a.code != http.StatusOK || json.Unmarshal(a.body, list) != nil || list.Kind != "APIGroupDiscoveryList" {
		return a, nil, skip("it has no aggregated discovery")
	}
	return a, list, nil
}

func aggregatedIsTheSame(ctx context.Context, s *server) error {
	for _, path := range []string{"/api", "/apis"} {
		a, list, err := aggregated(ctx, s, path)
		if err != nil {
			if path == "/api" {
				continue // it may have no core group
			}
			return err
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				gv := schema.GroupVersion{Group: g.Name, Version: v.Version}
				if v.Freshness == apidiscoveryv2.DiscoveryFreshnessStale || s.lists[gv] == nil {
					continue
				}
				var have, want []string
				for _, r := range v.Resources {
					have = append(have, r.Resource)
					for _, sub := range r.Subresources {
						have = append(have, r.Resource+"/"+sub.Subresource)
					}
				}
				for _, r := range s.lists[gv].APIResources {
					want = append(want, r.Name)
				}
				slices.Sort(have)
				slices.Sort(want)
				if !slices.Equal(have, want) {
					return &mismatch{a.sent, fmt.Sprintf("%s: %v", gv, have), fmt.Sprintf("as GET %s: %v", prefix(gv), want)}
				}
			}
		}
	}
	return nil
}

func discoveryIsCached(ctx context.Context, s *server) error {
	a, _, err := aggregated(ctx, s, "/apis")
	if err != nil {
		return err
	}
	etag := a.header.Get("Etag")
	if etag == "" {
		return a.wrong("an ETag")
	}
	again, err := s.do(ctx, ask{method: http.MethodGet, path: "/apis", header: map[string]string{
		"Accept": discovery.AcceptV2 + "," + asJSON, "If-None-Match": etag,
	}})
	if err != nil {
		return err
	}
	if again.code == http.StatusOK && again.header.Get("Etag") != etag {
		return nil // it changed meanwhile
	}
	return again.is(http.StatusNotModified)
}

// documents are the OpenAPI v3 documents' addresses by path.
func documents(ctx context.Context, s *server) (*answer, map[string]string, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	a, err := s.read(ctx, "/openapi/v3", &index)
	if err != nil {
		return a, nil, err
	}
	all := map[string]string{}
	for path, at := range index.Paths {
		all[path] = at.ServerRelativeURL
	}
	return a, all, nil
}

func openAPIIndex(ctx context.Context, s *server) error {
	a, all, err := documents(ctx, s)
	if err != nil {
		return err
	}
	for _, gv := range s.versions {
		if all[strings.TrimPrefix(prefix(gv), "/")] == "" {
			return a.wrong("a document for %s", gv)
		}
	}
	return nil
}

// schemas are what is read of an OpenAPI v3 document.
type schemas struct {
	Components struct {
		Schemas map[string]struct {
			Kinds      []metav1.GroupVersionKind  `json:"x-kubernetes-group-version-kind"`
			Properties map[string]json.RawMessage `json:"properties"`
		} `json:"schemas"`
	} `json:"components"`
}

// hasField tells whether OpenAPI says that objects have a field.
func (r *resource) hasField(ctx context.Context, field string) bool {
	var document schemas
	if _, err := r.read(ctx, "/openapi/v3"+prefix(r.gvr.GroupVersion()), &document); err != nil {
		return false
	}
	own := metav1.GroupVersionKind{Group: r.gvr.Group, Version: r.gvr.Version, Kind: r.kind}
	for _, one := range document.Components.Schemas {
		if slices.Contains(one.Kinds, own) && one.Properties[field] != nil {
			return true
		}
	}
	return false
}

func openAPIKinds(ctx context.Context, s *server) error {
	for _, gv := range s.versions {
		if s.lists[gv] == nil {
			continue
		}
		var document schemas
		a, err := s.read(ctx, "/openapi/v3"+prefix(gv), &document)
		if err != nil {
			return err
		}
		known := map[string]bool{}
		for _, one := range document.Components.Schemas {
			for _, k := range one.Kinds {
				known[k.Group+"/"+k.Version+"/"+k.Kind] = true
			}
		}
		for _, r := range s.lists[gv].APIResources {
			group, version := r.Group, r.Version
			if version == "" {
				group, version = gv.Group, gv.Version
			}
			if kind := group + "/" + version + "/" + r.Kind; !strings.Contains(r.Name, "/") && !known[kind] {
				return &mismatch{a.sent, "no schema of " + kind, "one with x-kubernetes-group-version-kind"}
			}
		}
	}
	return nil
}

func openAPIHash(ctx context.Context, s *server) error {
	_, all, err := documents(ctx, s)
	if err != nil {
		return err
	}
	for _, at := range all {
		u, err := url.Parse(at)
		if err != nil || u.Query().Get("hash") == "" {
			continue
		}
		a, err := s.do(ctx, ask{method: http.MethodGet, path: u.Path, query: u.Query()})
		if err != nil {
			return err
		}
		if err := a.is(http.StatusOK); err != nil {
			return err
		}
		if !strings.Contains(a.header.Get("Cache-Control"), "immutable") || a.header.Get("Etag") == "" {
			return &mismatch{a.sent, "Cache-Control: " + a.header.Get("Cache-Control"), "Cache-Control: public, immutable, and an ETag"}
		}
		return nil
	}
	return skip("its documents have no hashes")
}

func openAPIv2Paths(ctx context.Context, s *server) error {
	var document struct {
		Swagger string         `json:"swagger"`
		Paths   map[string]any `json:"paths"`
	}
	a, err := s.read(ctx, "/openapi/v2", &document)
	if err != nil {
		return err
	}
	if document.Swagger != "2.0" {
		return &mismatch{a.sent, "swagger: " + document.Swagger, "2.0"}
	}
	for _, gv := range s.versions {
		if s.lists[gv] == nil {
			continue
		}
		for _, r := range s.lists[gv].APIResources {
			resource, sub, _ := strings.Cut(r.Name, "/")
			path := prefix(gv) + "/" + resource
			if r.Namespaced {
				path = prefix(gv) + "/namespaces/{namespace}/" + resource
			}
			if sub != "" {
				path += "/{name}/" + sub
			}
			if _, ok := document.Paths[path]; !ok && !slices.ContainsFunc(r.Verbs, func(v string) bool { return v == "create" }) {
				_, ok = document.Paths[path+"/{name}"]
				if !ok {
					return &mismatch{a.sent, "no path " + path, "one"}
				}
			} else if !ok {
				return &mismatch{a.sent, "no path " + path, "one"}
			}
		}
	}
	return nil
}

func versionIsTold(ctx context.Context, s *server) error {
	var v struct{ GitVersion, Major, Minor string }
	a, err := s.read(ctx, "/version", &v)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(v.GitVersion, "v") || v.Major == "" || v.Minor == "" {
		return a.wrong("gitVersion vX.Y.Z, major and minor")
	}
	return nil
}

func healthIsTold(ctx context.Context, s *server) error {
	for _, path := range []string{"/livez", "/readyz"} {
		a, err := s.do(ctx, ask{method: http.MethodGet, path: path})
		if err != nil {
			return err
		}
		if a.code != http.StatusOK || string(a.body) != "ok" {
			return a.wrong("200 ok")
		}
	}
	return nil
}

func unknownPath(ctx context.Context, s *server) error {
	a, err := s.do(ctx, ask{method: http.MethodGet, path: "/apis/nobody.verify.example.com/v1/things"})
	if err != nil {
		return err
	}
	return a.is(http.StatusNotFound)
}

func unknownMethod(ctx context.Context, s *server) error {
	a, err := s.do(ctx, ask{method: http.MethodDelete, path: "/version"})
	if err != nil {
		return err
	}
	return a.is(http.StatusMethodNotAllowed)
}
