package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	phaseLifecycle = "Deletion"
	// A namespace with so many ConfigMaps, and as many objects of so many CRDs.
	namespaceObjects = 1000
	namespaceCRDs    = 5
	// An owner with so many dependents.
	dependents    = 5000
	fillClients   = 16
	lifecycleName = "lifecycle"
	// look is how often the end is looked for: it bounds how exact the seconds are.
	look = 10 * time.Millisecond
)

// measureLifecycle measures how long what was deleted takes to be gone.
// kube-apiserver leaves that to another program, which is not compared.
func measureLifecycle(ctx context.Context, l *lab, t target) error {
	if _, ok := t.(*sailplane); !ok {
		return nil
	}
	return with(ctx, l, t, func(s *server) error {
		if err := deleteNamespace(ctx, l, s); err != nil {
			return err
		}
		return collectDependents(ctx, l, s)
	})
}

func namespaceRow() string {
	return fmt.Sprintf("namespace with %d ConfigMaps and %d objects of %d CRDs, from delete to gone: ",
		namespaceObjects, namespaceObjects, namespaceCRDs)
}

func deleteNamespace(ctx context.Context, l *lab, s *server) error {
	client, err := s.clientset("")
	if err != nil {
		return err
	}
	if err := fillNamespace(ctx, s, client); err != nil {
		return err
	}
	return deletion{
		what: namespaceRow(),
		remove: func() error {
			return client.CoreV1().Namespaces().Delete(ctx, lifecycleName, metav1.DeleteOptions{})
		},
		gone: func() (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, lifecycleName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		},
	}.measure(ctx, l, s)
}

// fillNamespace makes a namespace full of objects.
func fillNamespace(ctx context.Context, s *server, client *kubernetes.Clientset) error {
	ns := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: lifecycleName}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	d, err := newDefiner(s)
	if err != nil {
		return err
	}
	for i := range namespaceCRDs {
		if err := d.define(ctx, fmt.Sprint(lifecycleName, i)); err != nil {
			return err
		}
	}
	clients, err := s.dynamics(fillClients)
	if err != nil {
		return err
	}
	_, err = repeat(ctx, fillClients, namespaceObjects, func(ctx context.Context, c, i int) error {
		name := fmt.Sprint(lifecycleName, i%namespaceCRDs)
		o := object(name)
		o.SetName(fmt.Sprint("w-", i))
		o.SetNamespace(lifecycleName)
		_, err := clients[c].Resource(definition(name).resource()).Namespace(lifecycleName).Create(ctx, o, metav1.CreateOptions{})
		return errors.Join(err, fill(ctx, client, lifecycleName, i))
	})
	return err
}

// collectDependents deletes an owner in the background.
func collectDependents(ctx context.Context, l *lab, s *server) error {
	client, err := s.clientset("")
	if err != nil {
		return err
	}
	const ns = "collect"
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return err
	}
	root, err := client.CoreV1().Secrets(ns).Create(ctx, &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "root"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: root.Name, UID: root.UID}
	if _, err := repeat(ctx, fillClients, dependents, func(ctx context.Context, _, i int) error {
		return fill(ctx, client, ns, i, owner)
	}); err != nil {
		return err
	}
	policy := metav1.DeletePropagationBackground
	return deletion{
		what: fmt.Sprintf("owner of %d ConfigMaps, from delete to all gone: ", dependents),
		remove: func() error {
			return client.CoreV1().Secrets(ns).Delete(ctx, root.Name, metav1.DeleteOptions{PropagationPolicy: &policy})
		},
		gone: func() (bool, error) {
			list, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{ResourceVersion: "0", Limit: 1})
			if err != nil {
				return false, err
			}
			return len(list.Items) == 0, nil
		},
	}.measure(ctx, l, s)
}

func fill(ctx context.Context, client *kubernetes.Clientset, ns string, i int, owners ...metav1.OwnerReference) error {
	cm := &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cm-", i), OwnerReferences: owners},
		Data:       map[string]string{"value": value("created")},
	}
	_, err := client.CoreV1().ConfigMaps(ns).Create(ctx, cm, metav1.CreateOptions{})
	return err
}

// deletion is what is measured from a delete to the moment when nothing is left.
type deletion struct {
	what   string
	remove func() error
	gone   func() (bool, error)
}

func (d deletion) measure(ctx context.Context, l *lab, s *server) error {
	if err := pause(ctx, settle); err != nil {
		return err
	}
	begun := time.Now()
	cpu, err := s.spent(func() error {
		return s.phase(lifecycleName, func() error {
			if err := d.remove(); err != nil {
				return err
			}
			for {
				done, err := d.gone()
				if done || err != nil {
					return err
				}
				if time.Since(begun) > patience {
					return fmt.Errorf("not gone after %v", patience)
				}
				if err := pause(ctx, look); err != nil {
					return err
				}
			}
		})
	})
	if err != nil {
		return err
	}
	l.results.add(phaseLifecycle, d.what+"s", time.Since(begun).Seconds())
	l.results.add(phaseLifecycle, d.what+"CPU s", cpu.Seconds())
	return nil
}
