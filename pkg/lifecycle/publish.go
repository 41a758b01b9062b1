package lifecycle

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// DefaultServiceAccounts is the part that keeps a ServiceAccount "default" in
// every namespace, as Kubernetes does. It needs core.ServiceAccounts.
type DefaultServiceAccounts struct{}

// Install declares the work.
func (DefaultServiceAccounts) Install(p *controlplane.Plan) error {
	p.Need("core.ServiceAccounts{}", corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	publish(p, publisher{
		resource: corev1.Resource("serviceaccounts"), name: "default",
		ensure: func(ctx context.Context, b *publisher, namespace string) error {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
			_, err := b.core.ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		},
	})
	return nil
}

// RootCA is the part that keeps a ConfigMap "kube-root-ca.crt" in every
// namespace, by which workloads verify the API server. It needs core.ConfigMaps.
type RootCA struct {
	// Bundle is the value of key ca.crt: certificates in PEM. Empty: those of the
	// authority that signed the server's certificate, kept up to date. Then a
	// server without one, which does not listen or has its certificate from
	// elsewhere, does not start.
	Bundle []byte
}

// rootCAName is the ConfigMap's name in Kubernetes.
const rootCAName = "kube-root-ca.crt"

// Install declares the work.
func (r RootCA) Install(p *controlplane.Plan) error {
	p.Need("core.ConfigMaps{}", corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	b := publisher{resource: corev1.Resource("configmaps"), name: rootCAName, ensure: r.ensure}
	if len(r.Bundle) == 0 {
		b.prepare, b.follow = hasAuthority, followAuthority
	}
	publish(p, b)
	return nil
}

// ensure writes the ConfigMap of a namespace, unless it is right.
func (r RootCA) ensure(ctx context.Context, b *publisher, namespace string) error {
	want := map[string]string{"ca.crt": string(r.Bundle)}
	if len(r.Bundle) == 0 {
		want["ca.crt"] = string(b.server.Authority().CurrentCABundleContent())
	}
	configMaps := b.core.ConfigMaps(namespace)
	found, err := configMaps.Get(ctx, rootCAName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = configMaps.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: rootCAName,
				Annotations: map[string]string{"kubernetes.io/description": "Contains a CA bundle that can be used to verify the " +
					"kube-apiserver when using internal endpoints such as the internal service IP or kubernetes.default.svc. " +
					"No other usage is guaranteed across distributions of Kubernetes clusters."},
			},
			Data: want,
		}, metav1.CreateOptions{})
	case err == nil && !maps.Equal(found.Data, want):
		found.Data = want
		_, err = configMaps.Update(ctx, found, metav1.UpdateOptions{})
	}
	return err
}

// hasAuthority fails unless the server knows who signed its certificate.
func hasAuthority(_ context.Context, plane *controlplane.Plane) error {
	if plane.Server().Authority() == nil {
		return errors.New("field Bundle: it is empty, and the server has no certificate authority of its own: " +
			"give the certificates that its clients trust, in PEM, or have it listen with authn.Admin{}")
	}
	return nil
}

// followAuthority calls a function when the authority's certificates change.
func followAuthority(ctx context.Context, server *controlplane.Server, changed func()) {
	l := &listener{}
	l.changed.Store(&changed)
	context.AfterFunc(ctx, func() { l.changed.Store(nil) })
	server.Authority().AddListener(l)
}

// listener holds nothing of a plane that has ended, since it can never be removed.
type listener struct{ changed atomic.Pointer[func()] }

// Enqueue implements dynamiccertificates.Listener.
func (l *listener) Enqueue() {
	if changed := l.changed.Load(); changed != nil {
		(*changed)()
	}
}

// publisher keeps an object in every namespace.
type publisher struct {
	resource schema.GroupResource
	name     string
	ensure   func(ctx context.Context, b *publisher, namespace string) error
	// prepare returns, at the start, why the object cannot be published; may be nil.
	prepare controlplane.WorkFunc
	// follow calls a function when the object must change; may be nil.
	follow func(ctx context.Context, server *controlplane.Server, changed func())

	server *controlplane.Server
	core   typedcorev1.CoreV1Interface
	feed   *feed.Feed
	queue  *retry.Queue[string]
}

func publish(p *controlplane.Plan, b publisher) {
	p.Feed()
	p.Need("core.Namespaces{}", corev1.SchemeGroupVersion.WithKind("Namespace"))
	p.Work(controlplane.Work{Name: "publish-" + b.name, Elected: true, Start: b.prepare, Run: func(
		ctx context.Context, plane *controlplane.Plane,
	) error {
		b := b
		b.server, b.core, b.feed = plane.Server(), plane.Client().CoreV1(), plane.Feed()
		b.queue = retry.NewQueue[string](firstRetry, lastRetry)
		b.run(ctx)
		return nil
	}})
}

func (b *publisher) run(ctx context.Context) {
	defer b.queue.ShutDown()
	defer b.feed.OnChange(func(before, after *feed.Object) { b.enqueue(cmp.Or(after, before)) })()
	if b.feed.Await(ctx) != nil {
		return
	}
	if b.follow != nil {
		b.follow(ctx, b.server, b.lookAll)
	}
	b.lookAll()
	b.queue.Run(ctx, 1, b.publish, func(ctx context.Context, namespace string, err error) {
		klog.FromContext(ctx).Error(err, "Cannot publish an object yet; will retry", "namespace", namespace, "name", b.name)
	})
}

// lookAll queues every namespace.
func (b *publisher) lookAll() {
	for o := range b.feed.All() {
		if o.Type.Resource == corev1.Resource("namespaces") {
			b.enqueue(o)
		}
	}
}

// enqueue queues a namespace, or that of the published object.
func (b *publisher) enqueue(o *feed.Object) {
	switch {
	case o.Type.Resource == corev1.Resource("namespaces") && !o.Deleting:
		b.queue.Add(o.Name)
	case o.Type.Resource == b.resource && o.Name == b.name:
		b.queue.Add(o.Namespace)
	}
}

// publish makes the object in a namespace, unless that is gone or goes.
func (b *publisher) publish(ctx context.Context, namespace string) error {
	err := b.ensure(ctx, b, namespace)
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		err = b.terminating(ctx, namespace, err)
	}
	return retry.UnlessGone(err)
}

// terminating returns nil when the namespace is being deleted, and else the
// refusal: admission may still know a deleted namespace and not yet the new one
// of that name, which the feed reports only once.
func (b *publisher) terminating(ctx context.Context, namespace string, refusal error) error {
	ns, err := b.core.Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	switch {
	case err != nil:
		return err
	case ns.DeletionTimestamp != nil:
		return nil
	}
	return refusal
}
