package projected

import (
	"context"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Reader reads the resource below.
type Reader interface {
	Get(ctx context.Context, namespace, name string, options metav1.GetOptions) (Object, error)
	List(ctx context.Context, namespace string, options metav1.ListOptions) (*Page, error)
	// Watch watches all objects. Those of the events are of the resource below.
	Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error)
}

// Writer writes the resource below. A write meets another one if the object has another version by
// then: that is the error Conflict.
type Writer interface {
	GetToWrite(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error)
	Create(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error)
	// Update writes an object, or a sub-resource of it.
	Update(ctx context.Context, obj *unstructured.Unstructured, subresource string) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error
}

// Below is the resource below. Its string is its name in errors.
type Below interface {
	Reader
	Writer
	fmt.Stringer
}

// Page is a page of a list.
type Page struct {
	Items             []Object
	Version, Continue string
}

// Client reads and writes the resource below by the API of a server.
type Client struct {
	resource schema.GroupVersionResource
	host     string // empty: this server
	by       string
	client   *http.Client
	dynamic  dynamic.NamespaceableResourceInterface
	found    discovery.DiscoveryInterface

	mu   sync.Mutex
	kind string
}

var _ Below = (*Client)(nil)

// NewClient returns a client of a resource. The host is where errors say it is, empty for this
// server; by is the name of who writes, in the managed fields below.
func NewClient(config *rest.Config, resource schema.GroupVersionResource, host, by string) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // who asks is limited
	config.UserAgent = by
	config.WarningHandlerWithContext = warnings{}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	d, err := dynamic.NewForConfigAndClient(config, client)
	if err != nil {
		return nil, err
	}
	bounded := *client // discovery takes no context
	bounded.Timeout = callTimeout
	found, err := discovery.NewDiscoveryClientForConfigAndClient(config, &bounded)
	if err != nil {
		return nil, err
	}
	return &Client{resource: resource, host: host, by: by, client: client, dynamic: d.Resource(resource), found: found}, nil
}

// Close closes the connections to another server on which nothing runs.
func (c *Client) Close() {
	if c.host != "" {
		utilnet.CloseIdleConnectionsFor(c.client.Transport)
	}
}

// warnings hands the warnings of a write below to the client of the view.
type warnings struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, agent, text string) {
	warning.AddWarning(ctx, agent, text)
}

// String is the resource, and the server that has it.
func (c *Client) String() string {
	name := c.resource.GroupResource().String()
	if c.host == "" {
		return name
	}
	return name + " of " + c.host
}

// in is the resource in a namespace.
func (c *Client) in(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.dynamic
	}
	return c.dynamic.Namespace(namespace)
}

// Get implements Reader.
func (c *Client) Get(ctx context.Context, namespace, name string, options metav1.GetOptions) (Object, error) {
	obj, err := c.in(namespace).Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return obj, nil
}

// List implements Reader.
func (c *Client) List(ctx context.Context, namespace string, options metav1.ListOptions) (*Page, error) {
	list, err := c.in(namespace).List(ctx, options)
	if err != nil {
		return nil, err
	}
	page := &Page{Items: make([]Object, len(list.Items)), Version: list.GetResourceVersion(), Continue: list.GetContinue()}
	for i := range list.Items {
		page.Items[i] = &list.Items[i]
	}
	return page, nil
}

// Watch implements Reader.
func (c *Client) Watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return c.dynamic.Watch(ctx, options)
}

// GetToWrite implements Writer.
func (c *Client) GetToWrite(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	return c.in(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Create implements Writer.
func (c *Client) Create(ctx context.Context, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	kind, err := c.discover()
	if err != nil {
		return nil, err
	}
	obj.SetGroupVersionKind(c.resource.GroupVersion().WithKind(kind))
	return c.in(obj.GetNamespace()).Create(ctx, obj, metav1.CreateOptions{FieldManager: c.by})
}

// Update implements Writer.
func (c *Client) Update(ctx context.Context, obj *unstructured.Unstructured, subresource string) (*unstructured.Unstructured, error) {
	options := metav1.UpdateOptions{FieldManager: c.by}
	if subresource != "" {
		return c.in(obj.GetNamespace()).Update(ctx, obj, options, subresource)
	}
	return c.in(obj.GetNamespace()).Update(ctx, obj, options)
}

// Delete implements Writer.
func (c *Client) Delete(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
	return c.in(namespace).Delete(ctx, name, options)
}

// discover returns the kind of the objects.
func (c *Client) discover() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kind != "" {
		return c.kind, nil
	}
	all, err := c.found.ServerResourcesForGroupVersion(c.resource.GroupVersion().String())
	if err != nil {
		return "", err
	}
	for _, r := range all.APIResources {
		if r.Name == c.resource.Resource {
			c.kind = r.Kind
			return c.kind, nil
		}
	}
	return "", fmt.Errorf("%s has no such resource", c.resource.GroupVersion())
}

// versionOf is the version of an object or a bookmark.
func versionOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return ""
	}
	return m.GetResourceVersion()
}
