package crd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const (
	// fieldManager owns the fields of the CRDs given at start.
	fieldManager = "sailplane"
	// applyLimit is how many CRDs are applied at the same time.
	applyLimit = 8
)

// apply brings the server's CRDs to the given content by server-side apply, so
// that a restart changes nothing and fields that others own stay. Where another
// manager owns a given field, the file wins. It returns the generation of each CRD
// by its name. Its error joins what the server says about each, with file, line
// and field.
func apply(ctx context.Context, config *rest.Config, defs []definition) (map[string]int64, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1 // applyLimit is the limit
	// Only the generation in the answer matters: metadata is the smallest answer.
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("apply CRDs: %w", err)
	}
	crds := client.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	options := metav1.PatchOptions{
		FieldManager:    fieldManager,
		Force:           ptr.To(true),
		FieldValidation: metav1.FieldValidationIgnore, // load is stricter
	}

	failures, generations := make([]error, len(defs)), make([]int64, len(defs))
	var group errgroup.Group
	group.SetLimit(applyLimit)
	for i, d := range defs {
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil //nolint:nilerr // the start was given up: nobody needs the error
			}
			applied, err := crds.Patch(ctx, d.name, types.ApplyPatchType, d.body, options)
			if err != nil {
				failures[i] = d.rejected(err)
				return nil
			}
			generations[i] = applied.Generation
			return nil
		})
	}
	_ = group.Wait() // failures has the errors
	if ctx.Err() != nil {
		return nil, fmt.Errorf("apply CRDs: %w", context.Cause(ctx))
	}
	byName := map[string]int64{}
	for i, d := range defs {
		byName[d.name] = generations[i]
	}
	return byName, errors.Join(failures...)
}

// rejected adds the lines of the file to what the server says about a CRD.
func (d definition) rejected(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return fmt.Errorf("%s: line %d: apply CRD %s: %w", d.source.file, d.line, d.name, err)
	}
	var errs []error
	for _, cause := range status.Status().Details.Causes {
		if cause.Field == "" || strings.HasPrefix(cause.Field, "status.") {
			continue
		}
		path := published(cause.Field)
		errs = append(errs, d.problem(path, cause.Message))
	}
	if len(errs) == 0 {
		return fmt.Errorf("%s: line %d: apply CRD %s: %w", d.source.file, d.line, d.name, err)
	}
	return errors.Join(errs...)
}
