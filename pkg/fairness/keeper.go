package fairness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
)

const (
	retryAfter   = time.Second // after an error
	pollInterval = time.Minute
)

// keepDefaults repairs default objects that are changed or deleted, until the
// context ends.
func keepDefaults(ctx context.Context, plane *controlplane.Plane) error {
	noticed := make(chan struct{}, 1)
	// The informers belong to the plane. This work may end earlier, when it loses
	// its Lease, and start again.
	flow := plane.Informers().Flowcontrol().V1()
	for _, informer := range []cache.SharedIndexInformer{flow.FlowSchemas().Informer(), flow.PriorityLevelConfigurations().Informer()} {
		handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(any, any) { signal.Wake(noticed) },
			DeleteFunc: func(any) { signal.Wake(noticed) },
		})
		if err != nil {
			return err
		}
		defer func() { _ = informer.RemoveEventHandler(handler) }() //nolint:gocritic // it is for both
	}
	for {
		pause := pollInterval
		if err := makeDefaults(ctx, plane); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot write the default flow schemas and priority levels yet")
			pause = retryAfter
		}
		select {
		case <-noticed:
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// makeDefaults creates missing objects and repairs changed ones.
func makeDefaults(ctx context.Context, plane *controlplane.Plane) error {
	client := plane.Client().FlowcontrolV1()
	levels, schemas := client.PriorityLevelConfigurations(), client.FlowSchemas()
	var errs []error
	// Levels first: a schema of a level that does not exist matches nothing.
	for _, d := range defaultLevels() {
		errs = append(errs, keep(ctx, levels, d, func(have, want *flowcontrolv1.PriorityLevelConfiguration) bool {
			same := equality.Semantic.DeepEqual(have.Spec, want.Spec)
			have.Spec = want.Spec
			return same
		}))
	}
	for _, d := range defaultSchemas() {
		errs = append(errs, keep(ctx, schemas, d, func(have, want *flowcontrolv1.FlowSchema) bool {
			same := equality.Semantic.DeepEqual(have.Spec, want.Spec)
			have.Spec = want.Spec
			return same
		}))
	}
	return errors.Join(errs...)
}

// kept is a client of one kind.
type kept[T metav1.Object] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
}

// standard is an object that must exist.
type standard[T metav1.Object] struct {
	object    T
	mandatory bool
}

// keep creates one object, or restores its spec. assign sets the spec of the
// existing object, and tells whether it was the same.
func keep[T metav1.Object](ctx context.Context, client kept[T], d standard[T], assign func(have, want T) bool) error {
	name := d.object.GetName()
	have, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		d.object.SetAnnotations(map[string]string{flowcontrolv1.AutoUpdateAnnotationKey: "true"})
		if _, err = client.Create(ctx, d.object, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) {
			return nil // another server was faster
		}
	case err != nil || !ours(have, d.mandatory):
	default:
		annotations := have.GetAnnotations()
		same := annotations[flowcontrolv1.AutoUpdateAnnotationKey] == "true"
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[flowcontrolv1.AutoUpdateAnnotationKey] = "true"
		have.SetAnnotations(annotations)
		if assign(have, d.object) && same {
			return nil
		}
		if _, err = client.Update(ctx, have, metav1.UpdateOptions{}); apierrors.IsConflict(err) {
			return nil // it changed again, which causes another check
		}
	}
	if err != nil {
		return fmt.Errorf("%T %q: %w", d.object, name, err)
	}
	return nil
}

// ours tells whether this package decides on the spec. Without the annotation, it
// does unless somebody changed the object: see "Maintenance of the Mandatory and
// Suggested Configuration Objects" in
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
func ours(o metav1.Object, mandatory bool) bool {
	switch auto := o.GetAnnotations()[flowcontrolv1.AutoUpdateAnnotationKey]; auto {
	case "true":
		return true
	case "":
		return mandatory || o.GetGeneration() == 1
	default:
		return mandatory
	}
}

// defaultLevels are copies of the published levels.
func defaultLevels() []standard[*flowcontrolv1.PriorityLevelConfiguration] {
	return defaults(bootstrap.MandatoryPriorityLevelConfigurations, bootstrap.SuggestedPriorityLevelConfigurations,
		bootstrap.SuggestedPriorityLevelConfigurationSystem.Name, bootstrap.SuggestedPriorityLevelConfigurationNodeHigh.Name)
}

// defaultSchemas are copies of the published schemas.
func defaultSchemas() []standard[*flowcontrolv1.FlowSchema] {
	return defaults(bootstrap.MandatoryFlowSchemas, bootstrap.SuggestedFlowSchemas,
		bootstrap.SuggestedFlowSchemaSystemNodes.Name, bootstrap.SuggestedFlowSchemaSystemNodeHigh.Name,
		bootstrap.SuggestedFlowSchemaKubeScheduler.Name)
}

func defaults[T interface {
	metav1.Object
	DeepCopy() T
}](mandatory, suggested []T, without ...string,
) []standard[T] {
	var all []standard[T]
	for _, o := range mandatory {
		all = append(all, standard[T]{o.DeepCopy(), true})
	}
	for _, o := range suggested {
		if !slices.Contains(without, o.GetName()) {
			all = append(all, standard[T]{o.DeepCopy(), false})
		}
	}
	return all
}
