package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

func migrateCommand() *cobra.Command {
	r := &rewriting{}
	c := &cobra.Command{
		Use:   "migrate RESOURCE...",
		Short: "Write the objects of resources again, in the version that is now stored",
		Long: `Write the objects of resources again, in the version that is now stored.

Stored objects keep the version in which they were written. After another version of
a CustomResourceDefinition became the stored one, this command brings old objects up
to date. When all are, and the definition is still the same, it removes the old
versions from status.storedVersions: they can be removed from the definition then.

It updates each object with its own content. The server writes only those whose
stored form is out of date, so running the command twice does no harm. Objects that
others write meanwhile are stored in the new version by that.

With --state, the next run continues one that was interrupted or had failures.
"sailplane storage check" shows which versions are stored.`,
		Example: `  sailplane storage migrate gadgets.example.com --kubeconfig admin.kubeconfig`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.resources = args
			return r.migrate(cmd.Context(), cmd.OutOrStdout())
		},
	}
	r.flags(c)
	return c
}

// migrate writes the objects of resources again, and then forgets their old versions.
func (r *rewriting) migrate(ctx context.Context, out io.Writer) error {
	w, targets, err := r.open(ctx, out)
	if err != nil {
		return err
	}
	before := map[string]definition{}
	for _, t := range targets {
		d, err := w.definition(ctx, t)
		if err != nil {
			return err
		}
		before[t.Name()] = d
	}
	if err := w.all(ctx, targets); err != nil || r.dryRun {
		return err
	}
	for _, t := range targets {
		if d := before[t.Name()]; d.stored != "" {
			if err := w.trim(ctx, t, d); err != nil {
				return fmt.Errorf("%s: %w", t.Name(), err)
			}
		}
	}
	return nil
}

// definition is what a CustomResourceDefinition says of what is stored; empty for other resources.
type definition struct {
	uid    string
	stored string   // the version in which objects are written
	all    []string // status.storedVersions
}

func definitionsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// definition reads that of a resource.
func (w *rewriter) definition(ctx context.Context, t served.Resource) (definition, error) {
	u, err := w.objects.Resource(definitionsResource()).Get(ctx, t.Name(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return definition{}, nil
	}
	if err != nil {
		return definition{}, fmt.Errorf("read the definition of %s: %w", t.Name(), err)
	}
	return definitionOf(u), nil
}

func definitionOf(u *unstructured.Unstructured) definition {
	d := definition{uid: string(u.GetUID())}
	d.all, _, _ = unstructured.NestedStringSlice(u.Object, "status", "storedVersions") // none if there are none
	versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")           // the server checked them
	for _, v := range versions {
		if one, ok := v.(map[string]any); ok && one["storage"] == true {
			d.stored, _ = one["name"].(string)
		}
	}
	return d
}

// trim removes the versions in which nothing is stored any more from the status of a definition, if it has
// not changed since before.
func (w *rewriter) trim(ctx context.Context, t served.Resource, before definition) error {
	for {
		u, err := w.objects.Resource(definitionsResource()).Get(ctx, t.Name(), metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read its definition: %w", err)
		}
		now := definitionOf(u)
		switch {
		case now.uid != before.uid || now.stored != before.stored:
			return fmt.Errorf("its definition was changed meanwhile: it stored version %s, and stores %s now: run the command again",
				before.stored, now.stored)
		case slices.Equal(now.all, []string{now.stored}):
			fmt.Fprintf(w.out, "%s: status.storedVersions: %s\n", t.Name(), now.stored)
			return nil
		}
		if err := unstructured.SetNestedStringSlice(u.Object, []string{now.stored}, "status", "storedVersions"); err != nil {
			return err
		}
		_, err = w.objects.Resource(definitionsResource()).UpdateStatus(ctx, u, metav1.UpdateOptions{})
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write the status of its definition: %w", err)
		}
		fmt.Fprintf(w.out, "%s: status.storedVersions: %s, was %s\n", t.Name(), now.stored, strings.Join(now.all, ", "))
		return nil
	}
}
