package clients

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Widget is the custom resource of config/samples/widgets-crd.yaml.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Size   int    `json:"size"`
		Colour string `json:"colour,omitempty"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase,omitempty"`
	} `json:"status,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (w *Widget) DeepCopyObject() runtime.Object {
	out := *w
	w.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// WidgetList is a list of widgets.
type WidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Widget `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *WidgetList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Widget, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Widget)
	}
	return &out
}

const finalizer = "example.com/scrap"

// painter sets the phase of widgets, and tells when one is scrapped.
type painter struct {
	client   client.Client
	scrapped chan string
}

func (p *painter) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	w := &Widget{}
	if err := p.client.Get(ctx, req.NamespacedName, w); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !w.DeletionTimestamp.IsZero() {
		before := client.MergeFrom(w.DeepCopyObject().(*Widget))
		if controllerutil.RemoveFinalizer(w, finalizer) {
			p.scrapped <- w.Name
			return reconcile.Result{}, client.IgnoreNotFound(p.client.Patch(ctx, w, before))
		}
		return reconcile.Result{}, nil
	}
	before := client.MergeFrom(w.DeepCopyObject().(*Widget))
	if controllerutil.AddFinalizer(w, finalizer) {
		return reconcile.Result{}, p.client.Patch(ctx, w, before)
	}
	if phase := "Painted " + w.Spec.Colour; w.Status.Phase != phase {
		w.Status.Phase = phase
		return reconcile.Result{}, p.client.Status().Patch(ctx, w, before)
	}
	return reconcile.Result{}, nil
}

// TestController runs a manager with a cache and a reconciler through the life of a custom resource.
func TestController(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		for way, config := range s.ways() {
			t.Run(way, func(t *testing.T) {
				m := newManager(t, config, nil)
				p := &painter{client: m.GetClient(), scrapped: make(chan string, 1)}
				must(t, builder.ControllerManagedBy(m).For(&Widget{}).Complete(p))
				run(t, m)

				ctx := t.Context()
				direct, err := client.NewWithWatch(config, client.Options{Scheme: m.GetScheme()})
				must(t, err)
				w := &Widget{ObjectMeta: metav1.ObjectMeta{Name: "lever", Namespace: "default"}}
				w.Spec.Size = 42
				must(t, direct.Create(ctx, w))
				if w.Spec.Colour != "green" {
					t.Errorf("the colour is %q, want the default green", w.Spec.Colour)
				}
				awaitPhase(t, direct, "Painted green")
				must(t, direct.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"colour":"blue"}}`))))
				awaitPhase(t, direct, "Painted blue")

				must(t, direct.Delete(ctx, w))
				if name := receive(t, "the finalizer runs", p.scrapped); name != "lever" {
					t.Errorf("scrapped %q", name)
				}
				key := client.ObjectKeyFromObject(w)
				eventually(t, "the widget is gone", func() bool { return apierrors.IsNotFound(direct.Get(ctx, key, &Widget{})) })
				eventually(t, "the cache forgets the widget", func() bool { return apierrors.IsNotFound(m.GetClient().Get(ctx, key, &Widget{})) })
			})
		}
	})
}

// TestLeaderElection has two managers compete: the second leads when the first stops.
func TestLeaderElection(t *testing.T) {
	onEveryStorage(t, func(t *testing.T, s *server) {
		elected := func(o *manager.Options) {
			o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "painter", "default"
			o.LeaderElectionReleaseOnCancel = true
			// Who leads gives the lease back when it stops: it need not end, and on a
			// busy machine must not.
			duration, deadline, retry := 2*patience, patience, 100*time.Millisecond
			o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &duration, &deadline, &retry
		}
		first, second := newManager(t, s.inProcess, elected), newManager(t, s.overTLS, elected)
		stop := run(t, first)
		receiveClosed(t, "the first leads", first.Elected())
		run(t, second)

		direct, err := client.New(s.overTLS, client.Options{Scheme: second.GetScheme()})
		must(t, err)
		lease := &coordinationv1.Lease{}
		must(t, direct.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "painter"}, lease))
		if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
			t.Errorf("nobody holds the lease: %+v", lease.Spec)
		}
		select {
		case <-second.Elected():
			t.Error("both lead")
		default:
		}
		stop()
		receiveClosed(t, "the second leads", second.Elected())
	})
}

func newManager(t *testing.T, c *rest.Config, change func(*manager.Options)) manager.Manager {
	t.Helper()
	s := runtime.NewScheme()
	must(t, scheme.AddToScheme(s))
	s.AddKnownTypes(widgets.GroupVersion(), &Widget{}, &WidgetList{})
	metav1.AddToGroupVersion(s, widgets.GroupVersion())
	unique := true // the same controller runs in many tests of this process
	options := manager.Options{
		Scheme: s, Logger: testr.New(t), Metrics: metrics.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: &unique},
	}
	if change != nil {
		change(&options)
	}
	m, err := controllerruntime.NewManager(c, options)
	must(t, err)
	return m
}

// run starts a manager and returns what stops it and waits for its end.
func run(t *testing.T, m manager.Manager) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stop = func() {
		cancel()
		if err := receive(t, "the manager stops", done); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
		done <- nil // stopped before the test ends
	}
	t.Cleanup(stop)
	return stop
}

func receiveClosed(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	eventually(t, what, func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	})
}

func awaitPhase(t *testing.T, c client.WithWatch, want string) {
	t.Helper()
	w, err := c.Watch(t.Context(), &WidgetList{}, client.InNamespace("default"))
	must(t, err)
	defer w.Stop()
	for {
		event := receive(t, fmt.Sprintf("phase %q", want), w.ResultChan())
		if got, ok := event.Object.(*Widget); ok && got.Status.Phase == want {
			return
		}
	}
}
