package served

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Catalog finds resources. It asks the server once for each group version, until
// [Catalog.Forget]. Several goroutines may use it.
type Catalog struct {
	Discovery discovery.DiscoveryInterface

	mu    sync.Mutex
	known map[schema.GroupVersion][]Resource
}

// Kind returns the resource of a kind, and false where the server has none.
func (c *Catalog) Kind(gvk schema.GroupVersionKind) (Resource, bool, error) {
	return c.first(gvk.GroupVersion(), func(r Resource) bool { return r.Kind == gvk.Kind })
}

// Resource returns a resource by its name, and false where the server has none.
func (c *Catalog) Resource(gvr schema.GroupVersionResource) (Resource, bool, error) {
	return c.first(gvr.GroupVersion(), func(r Resource) bool { return r.GroupVersionResource == gvr })
}

func (c *Catalog) first(gv schema.GroupVersion, which func(Resource) bool) (Resource, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, ok := c.known[gv]
	if !ok {
		var err error
		if all, err = c.ask(gv); err != nil {
			return Resource{}, false, err
		}
		if c.known == nil {
			c.known = map[schema.GroupVersion][]Resource{}
		}
		c.known[gv] = all
	}
	at := slices.IndexFunc(all, which)
	if at < 0 {
		return Resource{}, false, nil
	}
	return all[at], true, nil
}

// Forget has the next call ask the server again, after its resources changed.
func (c *Catalog) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = nil
}

// ask returns the resources of a group version, those first whose objects can be
// created: a view of a resource may have its kind. A group version that the server
// does not have is one without resources.
func (c *Catalog) ask(gv schema.GroupVersion) ([]Resource, error) {
	list, err := c.Discovery.ServerResourcesForGroupVersion(gv.String())
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("discovery of %s: %w", gv, err)
	}
	var first, others []Resource
	for i := range list.APIResources {
		a := &list.APIResources[i]
		if strings.Contains(a.Name, "/") {
			continue
		}
		r := Resource{GroupVersionResource: gv.WithResource(a.Name), Kind: a.Kind, Namespaced: a.Namespaced}
		r.Status = slices.ContainsFunc(list.APIResources, func(o metav1.APIResource) bool { return o.Name == a.Name+"/status" })
		if slices.Contains(a.Verbs, "create") {
			first = append(first, r)
		} else {
			others = append(others, r)
		}
	}
	return append(first, others...), nil
}
