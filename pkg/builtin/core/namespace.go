package core

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
	"github.com/sailplane-dev/sailplane/pkg/internal/signal"
	"github.com/sailplane-dev/sailplane/pkg/internal/terminator"
)

// Namespaces is the part that serves namespaces (v1) with their status and
// finalize sub-resources. It creates the namespaces default and kube-system
// before the plane is ready, keeps them from being deleted, and refuses objects
// in a namespace that is missing or terminating.
//
// A deleted namespace is Terminating until spec.finalizers is empty. Each new one has
// the finalizer "kubernetes", which is for this part: it deletes everything in the
// namespace, of every resource the plane serves, and then removes the finalizer
// through the finalize sub-resource. It writes what stands in the way into the
// conditions of the namespace, as Kubernetes does; finalizers are honoured. It finds
// objects in the plane's feed. Where servers share a storage, one of them does the
// work.
type Namespaces struct {
	// KeepDeleted leaves deleted namespaces Terminating, with their objects, for a
	// controller of yours. Empty: the part empties and removes them.
	KeepDeleted bool
}

// Install adds namespaces to the core group, the admission plugin
// NamespaceLifecycle, and the work that creates the first namespaces and removes
// deleted ones.
func (n Namespaces) Install(p *controlplane.Plan) error {
	plugin, err := lifecycle.NewLifecycle(sets.New(immortal()...))
	if err != nil {
		return fmt.Errorf("admission plugin %s: %w", lifecycle.PluginName, err)
	}
	p.Serve(shared().API(), namespaceResource())
	p.Admit(lifecycle.PluginName, plugin)
	p.AdmitAggregated(lifecycle.PluginName, living{plugin})
	if !n.KeepDeleted {
		p.Feed()
		p.CountAggregated()
		p.Work(controlplane.Work{Name: "namespace-deletion", Elected: true, Run: removeDeleted})
	}
	p.Work(controlplane.Work{Name: "namespaces", Start: func(ctx context.Context, plane *controlplane.Plane) error {
		if err := ensureNamespaces(ctx, plane.Client().CoreV1().Namespaces(), immortal()...); err != nil {
			return err
		}
		return awaitNamespaces(ctx, plane.Informers().Core().V1().Namespaces().Informer(), immortal()...)
	}})
	return nil
}

// living checks the namespaces of objects that other servers store: the plugin decides where
// others change objects.
type living struct{ *lifecycle.Lifecycle }

// Validate implements admission.ValidationInterface.
func (l living) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	return l.Admit(ctx, a, o)
}

// removeDeleted empties and removes namespaces that are deleted, until the context ends.
func removeDeleted(ctx context.Context, p *controlplane.Plane) error {
	known := &catalog.Catalog{Config: p.Config(), Changed: p.DiscoveryChanged}
	elsewhere := terminator.Elsewhere{Patience: p.ServerPatience()}
	if c := p.AggregatedCounter(); c != nil {
		elsewhere.Counts, elsewhere.Any = c.Counts, c.Any
	}
	return terminator.Run(ctx, known, p.Feed(), p.Stored, elsewhere)
}

// immortal are the namespaces that exist from the start and cannot be deleted.
func immortal() []string { return []string{metav1.NamespaceDefault, metav1.NamespaceSystem} }

// awaitNamespaces returns when the informer has the namespaces: for one that it lacks,
// admission asks the server with every write.
func awaitNamespaces(ctx context.Context, informer cache.SharedIndexInformer, names ...string) error {
	var added signal.Change
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { added.Announce() }})
	if err != nil {
		return err
	}
	defer func() { _ = informer.RemoveEventHandler(handler) }() // the handler is registered
	for _, name := range names {
		err := added.Await(ctx, func() bool {
			_, found, _ := informer.GetStore().GetByKey(name) // the error is always nil
			return found
		})
		if err != nil {
			return fmt.Errorf("namespace %q is not yet visible to admission: %w", name, err)
		}
	}
	return nil
}

// ensureNamespaces creates the namespaces that do not exist yet. It reads first: a
// plane starts on a storage that takes no writes if they exist there.
func ensureNamespaces(ctx context.Context, client typedcorev1.NamespaceInterface, names ...string) error {
	for _, name := range names {
		if _, err := client.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			if err != nil {
				return fmt.Errorf("get namespace %q: %w", name, err)
			}
			continue
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := client.Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create namespace %q: %w", name, err)
		}
	}
	return nil
}

func namespaces(more ...apis.Option) *apis.Definition {
	return apis.Resource[corev1.Namespace, corev1.NamespaceList]("namespaces", append([]apis.Option{
		apis.ClusterScoped(),
		apis.ShortNames("ns"),
		apis.NoGeneration(),
		apis.NameValidation(apivalidation.ValidateNamespaceName),
		apis.Default(defaultNamespace),
		apis.PrepareForCreate(prepareNamespace),
		apis.PrepareForUpdate(func(_ context.Context, ns, old *corev1.Namespace) {
			ns.Spec.Finalizers = old.Spec.Finalizers
			ns.Status = old.Status
		}),
		apis.Validate(validateNamespace),
		apis.SelectableFields(map[string]func(*corev1.Namespace) string{
			"status.phase": func(ns *corev1.Namespace) string { return string(ns.Status.Phase) },
		}),
		apis.Columns(func(ns *corev1.Namespace) []any {
			return []any{string(ns.Status.Phase)}
		}, metav1.TableColumnDefinition{
			Name: "Status", Type: "string", Description: "The status of the namespace",
		}),
		// Not apis.StatusAndMetadata: the phase has rules here only.
		apis.UpdateSubresource("status", apis.Update[corev1.Namespace]{
			Keep:     func(ns, old *corev1.Namespace) { ns.Spec = old.Spec },
			Ignores:  []string{"spec"},
			Validate: func(_ context.Context, ns, _ *corev1.Namespace) field.ErrorList { return validateNamespaceStatus(ns) },
		}),
		apis.UpdateSubresource("finalize", apis.Update[corev1.Namespace]{
			Keep:     func(ns, old *corev1.Namespace) { ns.Status = old.Status },
			Ignores:  []string{"status"},
			Validate: func(_ context.Context, ns, _ *corev1.Namespace) field.ErrorList { return validateNamespaceFinalize(ns) },
			PutOnly:  true,
		}),
		apis.Ignores("status", "spec.finalizers"),
		apis.Store(namespaceStore),
	}, more...)...)
}

func defaultNamespace(ns *corev1.Namespace) {
	setDefault(&ns.Status.Phase, corev1.NamespaceActive)
	// A generated name is not known yet; namespaceCreate labels that one.
	if ns.Name != "" {
		labelNamespace(ns)
	}
}

// labelNamespace makes a namespace selectable by its name, as KEP-2161 has it:
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/2161-apiserver-default-labels
func labelNamespace(ns *corev1.Namespace) {
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func prepareNamespace(_ context.Context, ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	// Not a default: the finalizer is removed later, and must not come back.
	if !slices.Contains(ns.Spec.Finalizers, corev1.FinalizerKubernetes) {
		ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
}

func validateNamespace(_ context.Context, ns *corev1.Namespace) field.ErrorList {
	errs := validateMetaFinalizers(&ns.ObjectMeta)
	for _, name := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(name, field.NewPath("spec", "finalizers"))...)
	}
	return errs
}

// validateNamespaceStatus is for /status: the phase follows from the deletion
// timestamp. (Kubernetes names the field Phase, with a capital.)
func validateNamespaceStatus(ns *corev1.Namespace) field.ErrorList {
	path, phase := field.NewPath("status", "Phase"), ns.Status.Phase
	switch {
	case ns.DeletionTimestamp.IsZero() && phase != corev1.NamespaceActive:
		return field.ErrorList{field.Invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")}
	case !ns.DeletionTimestamp.IsZero() && phase != corev1.NamespaceTerminating:
		return field.ErrorList{field.Invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")}
	}
	return nil
}

// validateNamespaceFinalize is for /finalize.
func validateNamespaceFinalize(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "finalizers")
	for i, name := range ns.Spec.Finalizers {
		errs = append(errs, validateFinalizer(name, path.Index(i))...)
	}
	return errs
}
