package storageapi

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	metadataclient "k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

// rightsTimeout is how long a server may take to know its rights, when it starts.
const rightsTimeout = 10 * time.Second

// front is an API server that has the destinations, other than this one.
type front struct {
	core    typedcorev1.CoreV1Interface
	objects metadataclient.Interface
}

// openFront makes the clients of the server that a kubeconfig names. They do not connect yet: it may be away.
func openFront(kubeconfig string) (*front, error) {
	config, err := dialing.Kubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadataclient.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &front{core, objects}, nil
}

// watches are those of what is written to a front, in each namespace that has a destination: rights in others are
// not needed. Only what has the label is read, and of that only the metadata.
type watches struct {
	client metadataclient.Interface
	// changed is called with an object that may have changed, and listed when all of a namespace are known.
	changed func(target)
	listed  func(namespace string)

	mu      sync.Mutex
	ends    map[string]context.CancelFunc // by namespace
	running sync.WaitGroup
}

// follow watches a namespace, until leave or the end of the context.
func (w *watches) follow(ctx context.Context, namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ends[namespace] != nil {
		return
	}
	ctx, w.ends[namespace] = context.WithCancel(ctx)
	labelled := func(o *metav1.ListOptions) { o.LabelSelector = v1alpha1.LabelEtcdStorage }
	for _, resource := range []string{"secrets", "configmaps"} {
		tell := func(o any) {
			if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = gone.Obj
			}
			if m, ok := o.(*metav1.PartialObjectMetadata); ok {
				w.changed(target{resource, m.Namespace, m.Name})
			}
		}
		informer := metadatainformer.NewFilteredMetadataInformer(
			w.client, corev1.SchemeGroupVersion.WithResource(resource), namespace, 0, cache.Indexers{}, labelled).Informer()
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // its error is that the informer has ended
			AddFunc: tell, UpdateFunc: func(_, o any) { tell(o) }, DeleteFunc: tell,
		})
		w.running.Go(func() { informer.RunWithContext(ctx) })
		w.running.Go(func() {
			select {
			case <-informer.HasSyncedChecker().Done():
				w.listed(namespace)
			case <-ctx.Done():
			}
		})
	}
}

// leave ends the watches of a namespace.
func (w *watches) leave(namespace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end := w.ends[namespace]; end != nil {
		end()
		delete(w.ends, namespace)
	}
}

// end waits until all watches have ended, as the context of follow has.
func (w *watches) end() { w.running.Wait() }

// unreadError is why it is not known what a destination has.
type unreadError struct{ error }

// Unwrap returns the cause.
func (e unreadError) Unwrap() error { return e.error }

// failure is what the condition tells of an error of the destinations. Where it is not known what they have, what is
// ready is not said to be unusable.
func failure(s *v1alpha1.EtcdStorage, err error) (reason, message string) {
	reason, message = v1alpha1.ReasonDestinationFailed, err.Error()
	was := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case errors.Is(err, errTaken):
		reason = v1alpha1.ReasonDestinationTaken
	case errors.As(err, new(unreadError)) && was != nil && was.Status == metav1.ConditionTrue:
		reason = v1alpha1.ReasonDestinationUnknown
	}
	// Each change of the status is looked at at once: the port of a connection, or the time, is no news.
	if was != nil && was.Reason == reason && withoutDigits(was.Message) == withoutDigits(message) {
		message = was.Message
	}
	return reason, message
}

func withoutDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return -1
		}
		return r
	}, s)
}

// isForgotten tells whether what was written for an EtcdStorage that is deleted may stay: the server that has it lets
// nobody look there any more, as when the namespace has gone with the rights in it. A certificate is good for nothing then.
func isForgotten(s *v1alpha1.EtcdStorage, err error) bool {
	return apierrors.IsForbidden(err) && time.Since(s.DeletionTimestamp.Time) > rightsTimeout
}

// stuck tells why an EtcdStorage that is deleted is still there.
func (c *controller) stuck(ctx context.Context, s *v1alpha1.EtcdStorage, err error) error {
	_, message := failure(s, err)
	if err := c.report(ctx, s, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonDestinationFailed,
		Message: message, ObservedGeneration: s.Generation,
	}); err != nil {
		return err
	}
	return toldError{message}
}

// isWanted tells whether an EtcdStorage has a destination in a namespace. The caller holds mu.
func (c *controller) isWanted(namespace string) bool {
	for at := range c.wanted {
		if at.namespace == namespace {
			return true
		}
	}
	return false
}
