package crd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/tools/cache"
)

// awaitEstablished returns when the informer has seen all the named CRDs
// established, in this generation or a later one. It returns an error when one
// cannot be established, because its names are taken or its schema is not
// structural, and when ctx ends, naming the CRDs it waits for.
func awaitEstablished(ctx context.Context, informer cache.SharedIndexInformer, generations map[string]int64) (err error) {
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // look once before the first event
	notify := func(object any) {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); !ok || !wanted(generations, crd) {
			return
		}
		select {
		case changed <- struct{}{}:
		default: // a look is due already
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		UpdateFunc: func(_, object any) { notify(object) },
	})
	if err != nil {
		return fmt.Errorf("watch CRDs: %w", err)
	}
	defer func() { err = errors.Join(err, informer.RemoveEventHandler(registration)) }()

	pending := slices.Sorted(maps.Keys(generations))
	patience := time.NewTimer(refusalPatience)
	defer patience.Stop()
	final := false
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until CRDs are established: %w: %s", context.Cause(ctx), strings.Join(pending, ", "))
		case <-changed:
			patience.Reset(refusalPatience)
			final = false
		case <-patience.C:
			// Nothing moves any more: the conditions are about the applied CRDs.
			// If this goroutine itself stood still, it looks at the changes first.
			final = len(changed) == 0
		}
		// The store is written before handlers are called.
		var refused []error
		pending = slices.DeleteFunc(pending, func(name string) bool {
			object, _, err := informer.GetStore().GetByKey(name)
			crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
			if err != nil || !ok || !wanted(generations, crd) {
				return false
			}
			refused = append(refused, refusal(crd))
			return established(crd)
		})
		if len(pending) == 0 {
			return nil
		}
		if err := errors.Join(refused...); err != nil && final {
			return err
		}
	}
}

// wanted tells whether it is one of the CRDs, in its generation or a later one.
func wanted(generations map[string]int64, crd *apiextensionsv1.CustomResourceDefinition) bool {
	generation, ok := generations[crd.Name]
	return ok && crd.Generation >= generation
}

// refusalPatience is how long a refusal must last. After a CRD is corrected, its
// conditions still tell the old mistake until the controllers have checked it
// again: in milliseconds, or in seconds on a busy machine.
const refusalPatience = 10 * time.Second

// refusal says why a CRD will not be established, or not with all of its names,
// until somebody changes it.
func refusal(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse ||
			c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue {
			return fmt.Errorf("CRD %s: %s is %s: %s: %s", crd.Name, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return nil
}
