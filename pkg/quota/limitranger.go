package quota

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// LimitRanges is the part that applies LimitRanges, which it serves too, to the pods
// and persistentvolumeclaims of their namespace. It is the admission plugin LimitRanger:
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#limitranger
//
// A created pod gets the defaults that its containers lack, and is refused when
// it violates bounds, with all of them in one error. So is a created or updated
// claim. Updates of pods are not checked, since they cannot change resources.
//
// A plane that serves neither pods nor claims does not watch LimitRanges.
type LimitRanges struct{}

// Install adds the admission plugin and the work that watches.
func (LimitRanges) Install(p *controlplane.Plan) error {
	l := newLimitRanger()
	p.Admit("LimitRanger", l)
	p.Work(controlplane.Work{Name: "limit ranges", Run: l.follow})
	return p.Include(core.LimitRanges{})
}

const (
	// asked is the number of namespaces without LimitRanges whose answer is kept,
	// and askedFor how long: both as in Kubernetes.
	asked    = 10000
	askedFor = 30 * time.Second
)

// limitRanger is the admission plugin. It asks for no informer when it is
// initialised, because it is unknown then whether pods are served.
type limitRanger struct {
	*admission.Handler
	client kubernetes.Interface
	// lister is nil until the informer is synced.
	lister atomic.Pointer[listers.LimitRangeLister]
	// answers are those of the API for namespaces without LimitRanges in the lister.
	answers *utilcache.LRUExpireCache
	asking  singleflight.Group
}

var (
	_ admission.MutationInterface            = &limitRanger{}
	_ admission.ValidationInterface          = &limitRanger{}
	_ admission.InitializationValidator      = &limitRanger{}
	_ initializer.WantsExternalKubeClientSet = &limitRanger{}
)

func newLimitRanger() *limitRanger {
	return &limitRanger{Handler: admission.NewHandler(admission.Create, admission.Update), answers: utilcache.NewLRUExpireCache(asked)}
}

// SetExternalKubeClientSet implements initializer.WantsExternalKubeClientSet.
func (l *limitRanger) SetExternalKubeClientSet(c kubernetes.Interface) { l.client = c }

// ValidateInitialization implements admission.InitializationValidator.
func (l *limitRanger) ValidateInitialization() error {
	if l.client == nil {
		return errors.New("it has no client")
	}
	return nil
}

// follow watches LimitRanges where there is something to apply them to.
func (l *limitRanger) follow(ctx context.Context, plane *controlplane.Plane) error {
	if !plane.Stored(corev1.Resource("pods")) && !plane.Stored(corev1.Resource("persistentvolumeclaims")) {
		return nil
	}
	ranges := plane.Informers().Core().V1().LimitRanges()
	synced := ranges.Informer().HasSyncedChecker()
	plane.Informers().StartWithContext(ctx)
	if cache.WaitFor(ctx, "", synced) {
		lister := ranges.Lister()
		l.lister.Store(&lister)
	}
	return nil
}

// Admit implements admission.MutationInterface.
func (l *limitRanger) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok || !isLimited(a) {
		return nil
	}
	ranges, err := l.ranges(ctx, a)
	if err != nil {
		return err
	}
	for _, r := range ranges {
		defaultPod(pod, r)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (l *limitRanger) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if !isLimited(a) {
		return nil
	}
	ranges, err := l.ranges(ctx, a)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range ranges {
		for i := range r.Spec.Limits {
			errs = append(errs, violations(&r.Spec.Limits[i], a.GetObject())...)
		}
	}
	if err := utilerrors.NewAggregate(errs); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// isLimited tells whether a request is for a limited object.
func isLimited(a admission.Attributes) bool {
	if a.GetSubresource() != "" {
		return false
	}
	switch a.GetObject().(type) {
	case *corev1.Pod:
		return a.GetOperation() == admission.Create
	case *corev1.PersistentVolumeClaim:
		old, ok := a.GetOldObject().(*corev1.PersistentVolumeClaim)
		return !ok || old.DeletionTimestamp == nil
	}
	return false
}

// ranges are the LimitRanges of the request's namespace, by name. Where the
// lister has none it may be behind, so the API is asked now and then.
func (l *limitRanger) ranges(ctx context.Context, a admission.Attributes) ([]*corev1.LimitRange, error) {
	namespace := a.GetNamespace()
	lister := l.lister.Load()
	if lister != nil {
		ranges, err := (*lister).LimitRanges(namespace).List(labels.Everything())
		if err != nil {
			return nil, admission.NewForbidden(a, fmt.Errorf(
				"unable to %s %v at this time because there was an error enforcing limit ranges", a.GetOperation(), a.GetResource()))
		}
		if len(ranges) > 0 {
			return byName(ranges), nil
		}
		if kept, ok := l.answers.Get(namespace); ok {
			return kept.([]*corev1.LimitRange), nil //nolint:forcetypeassert // nothing else is added
		}
	}
	found, err, _ := l.asking.Do(namespace, func() (any, error) {
		// The end of one waiting request must not end it.
		return l.ask(context.WithoutCancel(ctx), namespace)
	})
	if err != nil {
		return nil, admission.NewForbidden(a, err)
	}
	got, _ := found.([]*corev1.LimitRange) // it is one
	if lister != nil {
		l.answers.Add(namespace, got, askedFor)
	}
	return got, nil
}

func (l *limitRanger) ask(ctx context.Context, namespace string) ([]*corev1.LimitRange, error) {
	list, err := l.client.CoreV1().LimitRanges(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var got []*corev1.LimitRange
	for i := range list.Items {
		got = append(got, &list.Items[i])
	}
	return byName(got), nil
}

// byName sorts, so that the same request gets the same answer.
func byName(ranges []*corev1.LimitRange) []*corev1.LimitRange {
	slices.SortFunc(ranges, func(a, b *corev1.LimitRange) int { return cmp.Compare(a.Name, b.Name) })
	return ranges
}
