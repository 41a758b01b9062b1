// Package kept holds data directories that released versions of sailplane
// wrote, and what is needed to make and to read them. Its test starts the
// present version on a copy of each. The program in keep/ makes them; what is
// there, and who wrote it, is in testdata/README.md.
package kept

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Listing says what is in a data directory.
type Listing struct {
	// Program is what the binary that wrote the directory says of its version,
	// and Storage which of its storages it is: "sqlite" or "etcd".
	Program string `json:"program"`
	Storage string `json:"storage"`
	// Ended is how the server ended: "stopped" or "killed".
	Ended     string `json:"ended"`
	Encrypted bool   `json:"encrypted"`
	// CA is the SHA-256 of the file of the certificate authority.
	CA string `json:"ca"`
	// Token is one of a service account, whose name is TokenUser.
	Token     string `json:"token"`
	TokenUser string `json:"tokenUser"`
	// Revision is that of the storage when Objects were listed.
	Revision int64    `json:"revision"`
	Objects  []Object `json:"objects"`
	// Past are lists at earlier revisions, Watch is what happened after one.
	Past  []Past `json:"past"`
	Watch Watch  `json:"watch"`
}

// Past is what the namespace [Namespace] had of ConfigMaps at an earlier revision.
type Past struct {
	Revision int64    `json:"revision"`
	Objects  []Object `json:"objects"`
}

// Watch is what a watch of the ConfigMaps of [Namespace] delivered.
type Watch struct {
	From   int64   `json:"from"`
	Events []Event `json:"events"`
}

// Event is one event of a watch.
type Event struct {
	Type string `json:"type"`
	Object
}

// Namespace is where most of the objects of a listing are.
const Namespace = "kept"

// ConfigMaps is the resource of which a listing has history.
func ConfigMaps() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
}

// Object is one object of a listing.
type Object struct {
	// Resource is group/version/resource, or version/resource in the core group.
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
	// SHA256 is that of the object as JSON with sorted keys and no space.
	SHA256 string `json:"sha256"`

	content string
}

// Of describes an object of a resource.
func Of(gvr schema.GroupVersionResource, u *unstructured.Unstructured) (Object, error) {
	content, err := json.Marshal(u.Object)
	if err != nil {
		return Object{}, fmt.Errorf("%s %s/%s: %w", gvr.Resource, u.GetNamespace(), u.GetName(), err)
	}
	sum := sha256.Sum256(content)
	return Object{
		Resource: gvr.GroupVersion().String() + "/" + gvr.Resource, Namespace: u.GetNamespace(), Name: u.GetName(),
		UID: string(u.GetUID()), ResourceVersion: u.GetResourceVersion(),
		SHA256: hex.EncodeToString(sum[:]), content: string(content),
	}, nil
}

// id says which object it is.
func (o Object) id() string { return o.Resource + " " + o.Namespace + "/" + o.Name }

// Take lists every object of every version of every resource that can be
// listed, and the highest revision that an answer has.
func Take(ctx context.Context, config *rest.Config) ([]Object, int64, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, 0, err
	}
	resources, err := listable(config)
	if err != nil {
		return nil, 0, err
	}
	var all []Object
	var latest int64
	for _, gvr := range resources {
		objects, revision, err := List(ctx, client.Resource(gvr), gvr, metav1.ListOptions{})
		if err != nil {
			return nil, 0, fmt.Errorf("list %s: %w", gvr, err)
		}
		all = append(all, objects...)
		latest = max(latest, revision)
	}
	return all, latest, nil
}

// Settle takes lists until nothing changes any more: controllers may still be
// at work. What servers do for ever, such as renewing Leases, is no change.
func Settle(ctx context.Context, config *rest.Config) (last []Object, revision int64, err error) {
	var changes []string
	err = wait.PollUntilContextTimeout(ctx, time.Second, Limit, true, func(ctx context.Context) (bool, error) {
		before := last
		if last, revision, err = Take(ctx, config); err != nil {
			return false, err
		}
		changes = Differences(before, last)
		return before != nil && len(changes) == 0, nil
	})
	if err != nil {
		return nil, 0, fmt.Errorf("objects do not come to rest: %w: %v", err, changes)
	}
	return last, revision, nil
}

// List describes the objects of one list, sorted, and has its revision.
func List(
	ctx context.Context, client dynamic.ResourceInterface, gvr schema.GroupVersionResource, options metav1.ListOptions,
) ([]Object, int64, error) {
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, 0, err
	}
	revision, err := strconv.ParseInt(list.GetResourceVersion(), 10, 64)
	if err != nil {
		return nil, 0, fmt.Errorf("resource version of a list: %w", err)
	}
	objects := make([]Object, len(list.Items))
	for i := range list.Items {
		if objects[i], err = Of(gvr, &list.Items[i]); err != nil {
			return nil, 0, err
		}
	}
	slices.SortFunc(objects, func(a, b Object) int { return cmp.Compare(a.id(), b.id()) })
	return objects, revision, nil
}

// listable finds the resources that can be listed, sorted. A group that another
// server has, and that does not answer, is left out.
func listable(config *rest.Config) ([]schema.GroupVersionResource, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	_, lists, err := client.ServerGroupsAndResources()
	var partly *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &partly) {
		return nil, fmt.Errorf("find resources: %w", err)
	}
	var all []schema.GroupVersionResource
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "list") {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionResource) int { return cmp.Compare(a.String(), b.String()) })
	return all, nil
}

// Sum is the SHA-256 of a file.
func Sum(path string) (string, error) {
	content, err := os.ReadFile(path)
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), err
}

// ReadListing reads what [Listing.Write] wrote.
func ReadListing(path string) (*Listing, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l := &Listing{}
	if err := json.Unmarshal(content, l); err != nil {
		return nil, fmt.Errorf("listing %s: %w", path, err)
	}
	return l, nil
}

// Write writes the listing to a file.
func (l *Listing) Write(path string) error {
	content, err := json.MarshalIndent(l, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(content, '\n'), 0o644)
}
