package crd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// refusalPatience is how long a refusal must last. After a CRD is corrected, its
// conditions still tell the old mistake until the controllers have checked it
// again: in milliseconds, or in seconds on a busy machine.
const refusalPatience = 10 * time.Second

// awaitAll returns when all CRDs are established, each in the generation given for its
// name or a later one, and what they serve. It returns an error when one cannot be
// established, and when ctx ends, naming the CRDs it waits for.
func (g *groups) awaitAll(ctx context.Context, generations map[string]int64) ([]schema.GroupVersionResource, error) {
	names := slices.Sorted(maps.Keys(generations))
	all, refused := make([]*apiextensionsv1.CustomResourceDefinition, len(names)), make([]error, len(names))
	var waits sync.WaitGroup
	for i, name := range names {
		waits.Go(func() { all[i], refused[i] = g.await(ctx, name, generations[name], refusalPatience) })
	}
	waits.Wait()
	var resources []schema.GroupVersionResource
	var pending []string
	for i, crd := range all {
		switch {
		case crd != nil:
			resources = append(resources, served(crd)...)
		case refused[i] == nil:
			pending = append(pending, names[i])
		}
	}
	if len(pending) > 0 {
		refused = append(refused, fmt.Errorf("wait until CRDs are established: %w: %s", context.Cause(ctx), strings.Join(pending, ", ")))
	}
	return resources, errors.Join(refused...)
}

// await returns a CRD once it is established, in the given generation or a later one,
// and nothing when ctx ends before. Its error tells why the CRD cannot be established,
// which must have stood for as long as the patience is.
func (g *groups) await(
	ctx context.Context, name string, generation int64, patience time.Duration,
) (*apiextensionsv1.CustomResourceDefinition, error) {
	var end <-chan time.Time // of the patience with a refusal
	for final := false; ; {
		changed := g.changed.Next()
		crd, err := g.lister.Get(name)
		if err != nil || crd.Generation < generation {
			crd = &apiextensionsv1.CustomResourceDefinition{} // as if it had no conditions
		}
		if established(crd) {
			return crd, nil
		}
		refused := refusal(crd)
		switch {
		case refused == nil:
			end, final = nil, false
		case final || patience == 0:
			return nil, refused
		case end == nil:
			end = time.After(patience)
		}
		select {
		case <-changed:
		case <-end:
			final = true // unless the CRD was corrected just now
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// refusal says why a CRD will not be established, or not with all of its names,
// until somebody changes it.
func refusal(crd *apiextensionsv1.CustomResourceDefinition) error {
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.NamesAccepted && c.Status == apiextensionsv1.ConditionFalse ||
			c.Type == apiextensionsv1.NonStructuralSchema && c.Status == apiextensionsv1.ConditionTrue ||
			c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionFalse && !validBundle(crd) {
			return fmt.Errorf("CRD %s: %s is %s: %s: %s", crd.Name, c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return nil
}
