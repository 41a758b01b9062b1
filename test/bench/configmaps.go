package main

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	manager = "bench"
	// listed is a namespace with so many objects, which a page has a part of.
	listed        = "listed"
	listedObjects = 100
	listedPage    = 25
	listShare     = 5
)

func listVerb() string { return fmt.Sprintf("list of %d", listedObjects) }

// configMaps are created, read, changed and deleted again.
type configMaps struct {
	clients []*kubernetes.Clientset
	prefix  string
	objects []*corev1.ConfigMap // as the server last answered
}

func (c *configMaps) key(i int) string { return fmt.Sprintf("%s-%d", c.prefix, i) }

// value is a KiB that says what was done to the object.
func value(done string) string { return done + strings.Repeat("x", 1024-len(done)) }

// verbs are in an order in which each finds what it needs.
func (c *configMaps) verbs() []verb {
	return []verb{
		{name: "create", do: c.create},
		{name: "get", do: c.get},
		{name: listVerb(), share: listShare, do: func(ctx context.Context, client, _ int) error {
			return c.list(ctx, client, 0)
		}},
		{name: fmt.Sprintf("list of %d in pages of %d", listedObjects, listedPage), share: listShare, do: func(ctx context.Context, client, _ int) error {
			return c.list(ctx, client, listedPage)
		}},
		{name: "update", do: c.update},
		{name: "apply", do: func(ctx context.Context, client, i int) error {
			o := corev1apply.ConfigMap(c.key(i), metav1.NamespaceDefault).WithData(map[string]string{"value": value("applied")})
			_, err := c.api(client).Apply(ctx, o, metav1.ApplyOptions{FieldManager: manager, Force: true})
			return err
		}},
		{name: "delete", do: func(ctx context.Context, client, i int) error {
			return c.api(client).Delete(ctx, c.key(i), metav1.DeleteOptions{})
		}},
	}
}

func (c *configMaps) create(ctx context.Context, client, i int) (err error) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: c.key(i)}, Data: map[string]string{"value": value("created")}}
	c.objects[i], err = c.api(client).Create(ctx, o, metav1.CreateOptions{FieldManager: manager})
	return err
}

func (c *configMaps) get(ctx context.Context, client, i int) error {
	_, err := c.api(client).Get(ctx, c.key(i), metav1.GetOptions{})
	return err
}

func (c *configMaps) update(ctx context.Context, client, i int) (err error) {
	o := c.objects[i].DeepCopy()
	o.Data["value"] = value("updated")
	c.objects[i], err = c.api(client).Update(ctx, o, metav1.UpdateOptions{FieldManager: manager})
	return err
}

func (c *configMaps) list(ctx context.Context, client int, page int64) error {
	return listAll(ctx, c.clients[client], listed, listedObjects, page)
}

func (c *configMaps) api(client int) typedcorev1.ConfigMapInterface {
	return c.clients[client].CoreV1().ConfigMaps(metav1.NamespaceDefault)
}

// listAll lists a namespace that has so many ConfigMaps beside those that a
// cluster puts into each; in pages, if a page has a size.
func listAll(ctx context.Context, client *kubernetes.Clientset, namespace string, objects int, page int64) error {
	options, found := metav1.ListOptions{Limit: page}, 0
	for {
		list, err := client.CoreV1().ConfigMaps(namespace).List(ctx, options)
		if err != nil {
			return err
		}
		found += len(list.Items)
		if options.Continue = list.Continue; options.Continue == "" {
			break
		}
	}
	if found < objects {
		return fmt.Errorf("list of %s: %d objects: want %d", namespace, found, objects)
	}
	return nil
}

// fillListed makes what is listed.
func fillListed(ctx context.Context, s *server) error {
	return fillAnew(ctx, s, listed, listedObjects)
}

// fillAnew makes a namespace with so many ConfigMaps.
func fillAnew(ctx context.Context, s *server, namespace string, objects int) error {
	client, err := s.clientset("")
	if err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = repeat(ctx, fillClients, objects, func(ctx context.Context, _, i int) error {
		return fill(ctx, client, namespace, i)
	})
	return err
}
