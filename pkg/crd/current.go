package crd

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"
)

// current lets a request wait until this server has the CRDs that another one on the storage has
// written, where the answer depends on that: whoever was told by that one that a CRD is established
// finds it here. Upstream's servers answer 404 for a while.
//
// It asks the storage for a resource that is unknown here, and for discovery and OpenAPI. What this
// server knows of a CRD that has changed may be some milliseconds old, as with informers.
func (g *groups) current(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.plane != nil && g.plane.IsShared() {
			if name, depends := g.depends(r); depends {
				if err := g.catchUp(r.Context(), name); err != nil {
					klog.FromContext(r.Context()).V(1).Info("Answering without CRDs that other servers may have written", "reason", err)
				}
			}
		}
		next.ServeHTTP(w, r)
	})
}

// depends returns the CRD on which the answer to a request depends; empty: on all.
func (g *groups) depends(r *http.Request) (name string, depends bool) {
	info, ok := request.RequestInfoFrom(r.Context())
	if !ok {
		return "", false
	}
	if !info.IsResourceRequest {
		path := strings.TrimSuffix(r.URL.Path, "/")
		return "", path == "/apis" || strings.HasPrefix(path, "/apis/") || strings.HasPrefix(path, "/openapi/")
	}
	if info.APIPrefix != "apis" {
		return "", false
	}
	resource := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	return info.Resource + "." + info.APIGroup, !g.plane.Discovers(resource)
}

// catchUp returns when this server serves what the storage has of a CRD; of all, if it is empty.
func (g *groups) catchUp(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, usablePatience)
	defer cancel()
	for {
		stored, err := g.plane.StoredRevisions(ctx, apiextensionsv1.Resource("customresourcedefinitions"), name)
		if err != nil {
			return err
		}
		// One that is deleted meanwhile would be waited for in vain.
		within, end := context.WithTimeout(ctx, time.Second)
		err = g.catchUpWith(within, stored)
		end()
		if err == nil && name == "" {
			g.known.Store(slices.Max(append(slices.Collect(maps.Values(stored)), 0)))
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// catchUpWith returns when this server serves what CRDs said at their revisions.
func (g *groups) catchUpWith(ctx context.Context, stored map[string]int64) error {
	known := g.known.Load()
	for name, revision := range stored {
		if revision <= known {
			continue
		}
		if err := g.catchUpOne(ctx, name, revision); err != nil {
			return err
		}
	}
	return nil
}

// catchUpOne returns when this server serves what a CRD said at a revision.
func (g *groups) catchUpOne(ctx context.Context, name string, revision int64) error {
	var crd *apiextensionsv1.CustomResourceDefinition
	has := func() (has bool) {
		var err error
		crd, err = g.lister.Get(name)
		return err == nil && revisionOf(crd) >= revision
	}
	if !has() {
		if err := g.changed.Await(ctx, has); err != nil {
			return err
		}
	}
	if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) || crd.DeletionTimestamp != nil {
		return nil
	}
	if resources := served(crd); !g.plane.Discovers(resources...) {
		if err := g.plane.AwaitDiscovery(ctx, resources); err != nil {
			return err
		}
		return g.serving.await(ctx, crd)
	}
	return nil
}

func revisionOf(crd *apiextensionsv1.CustomResourceDefinition) int64 {
	revision, err := strconv.ParseInt(crd.ResourceVersion, 10, 64)
	if err != nil {
		return 0 // no version that the storage gives
	}
	return revision
}
