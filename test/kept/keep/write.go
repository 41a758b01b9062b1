package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/test/kept"
)

//go:embed objects
var objects embed.FS

// forever is how long the kept token lasts, in seconds: as long as the
// certificate authority, about ten years.
const forever = 10 * 365 * 24 * 60 * 60

// manager owns the fields that are not applied.
const manager = "keep"

// writer writes to a server.
type writer struct {
	client dynamic.Interface
}

func newWriter(config *rest.Config) (*writer, error) {
	client, err := dynamic.NewForConfig(config)
	return &writer{client: client}, err
}

// of is where objects like this one are.
func (w *writer) of(u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if ns := u.GetNamespace(); ns != "" {
		return w.client.Resource(gvr).Namespace(ns)
	}
	return w.client.Resource(gvr)
}

// configMaps are those of the namespace that has history.
func (w *writer) configMaps() dynamic.ResourceInterface {
	return w.client.Resource(kept.ConfigMaps()).Namespace(kept.Namespace)
}

// configMap is one of that namespace, with one value.
func configMap(name, key, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"name": name, "namespace": kept.Namespace},
		"data":     map[string]any{key: value},
	}}
}

// create writes the first half: what the files have, and what files cannot have.
func (w *writer) create(ctx context.Context, largest int) error {
	names, err := fs.Glob(objects, "objects/*.yaml")
	if err != nil {
		return err
	}
	for _, name := range names {
		content, err := objects.ReadFile(name)
		if err == nil {
			err = w.createFile(ctx, content)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	large := configMap("large", "value", text(largest))
	if _, err := w.of(large).Create(ctx, large, metav1.CreateOptions{FieldManager: manager}); err != nil {
		return err
	}
	return errors.Join(w.apply(ctx), w.status(ctx), w.child(ctx), w.update(ctx), w.forget(ctx))
}

func (w *writer) createFile(ctx context.Context, content []byte) error {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := decoder.Decode(u); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		// A resource is not found until its definition is served, and one with
		// a policy or in a namespace not allowed until that is known.
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, kept.Limit, true, func(ctx context.Context) (bool, error) {
			_, err := w.of(u).Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
}

// text is text of a size, of blocks of 4 KiB of which no two are equal. It
// can be compressed well.
func text(size int) string {
	var b strings.Builder
	for i := 0; b.Len() < size; i++ {
		fmt.Fprintf(&b, "block %5d\n%s\n", i, strings.Repeat("large ", 4084/6))
	}
	return b.String()[:size]
}

// apply applies one object as two managers.
func (w *writer) apply(ctx context.Context) error {
	for i, owner := range []string{"kept-one", "kept-two"} {
		u := configMap("applied", fmt.Sprint("of-", owner), fmt.Sprint(i))
		if _, err := w.of(u).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: owner}); err != nil {
			return fmt.Errorf("apply as %s: %w", owner, err)
		}
	}
	return nil
}

// status sets the status of a custom resource.
func (w *writer) status(ctx context.Context) error {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kept.example.com/v1", "kind": "Gadget",
		"metadata": map[string]any{"name": "new", "namespace": kept.Namespace},
		"status":   map[string]any{"phase": "Kept"},
	}}
	_, err := w.of(u).ApplyStatus(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: "kept-status"})
	return err
}

// child creates an object that another one owns.
func (w *writer) child(ctx context.Context) error {
	owner, err := w.configMaps().Get(ctx, "held", metav1.GetOptions{})
	if err != nil {
		return err
	}
	u := configMap("child", "of", owner.GetName())
	u.SetOwnerReferences([]metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: owner.GetName(), UID: owner.GetUID(),
	}})
	_, err = w.of(u).Create(ctx, u, metav1.CreateOptions{FieldManager: manager})
	return err
}

// token asks for a token of the service account.
func (w *writer) token(ctx context.Context) (token, user string, err error) {
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
		"metadata": map[string]any{"name": "builder", "namespace": kept.Namespace},
		"spec":     map[string]any{"expirationSeconds": int64(forever)},
	}}
	account := &unstructured.Unstructured{}
	account.SetAPIVersion("v1")
	account.SetKind("ServiceAccount")
	account.SetNamespace(kept.Namespace)
	answer, err := w.of(account).Create(ctx, request, metav1.CreateOptions{}, "token")
	if err != nil {
		return "", "", fmt.Errorf("token: %w", err)
	}
	token, _, err = unstructured.NestedString(answer.Object, "status", "token")
	return token, "system:serviceaccount:" + kept.Namespace + ":builder", err
}
