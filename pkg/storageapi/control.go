package storageapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
	"github.com/sailplane-dev/sailplane/pkg/storageapi/v1alpha1"
)

const (
	// finalizer keeps an EtcdStorage until its data is gone.
	finalizer = v1alpha1.GroupName + "/data"
	// workers is how many EtcdStorages are looked at at a time.
	workers = 4
	// The pauses after an error.
	firstRetry, lastRetry = 250 * time.Millisecond, time.Minute
	// settled is how long every server has to end the connections of a tenant that is
	// deleted, before its data is looked for a second time.
	settled = 2 * time.Second
	// writeTimeout bounds what is written for one EtcdStorage, to a server that may be away.
	writeTimeout = 10 * time.Second
	// eraseAtOnce is how many keys are deleted in one write.
	eraseAtOnce = 100
)

// controller gives tenants what they ask for: one of the servers that share a storage has it.
type controller struct {
	*lending
	plane   *controlplane.Plane
	core    typedcorev1.CoreV1Interface // of the server that has the destinations
	watches *watches                    // of that server, if it is another one
	queue   *retry.Queue[string]

	signing   sync.Mutex
	authority *authority // nil until it is needed

	mu      sync.Mutex
	wanted  map[target]string    // the names of EtcdStorages, by the destinations that they write
	emptied map[string]time.Time // when the last data of those that are deleted was found
	paused  map[string]time.Time // when those that move were first seen to
}

// control runs the controller until the context ends.
func (l *lending) control(ctx context.Context, p *controlplane.Plane) error {
	c := &controller{
		lending: l, plane: p, queue: retry.NewQueue[string](firstRetry, lastRetry), wanted: map[target]string{},
		emptied: map[string]time.Time{}, paused: map[string]time.Time{},
	}
	defer c.queue.ShutDown()
	defer c.watch()()
	handler, err := l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.add,
		UpdateFunc: func(_, s any) { c.add(s) },
	})
	if err != nil {
		return err
	}
	defer func() { _ = l.informer.RemoveEventHandler(handler) }() // it is the informer's
	l.controller.Store(c)
	defer l.controller.Store(nil)
	c.queue.Run(ctx, workers, c.handle, func(ctx context.Context, name string, err error) {
		if errors.As(err, new(toldError)) {
			return
		}
		klog.FromContext(ctx).Error(err, "Failed to lend an EtcdStorage, will try again", "name", name)
	})
	return nil
}

// watch notices what happens at destinations. It returns what ends that when the context of control has ended.
func (c *controller) watch() (end func()) {
	if c.front == nil {
		c.core = c.plane.Client().CoreV1()
		return c.plane.Feed().OnChange(c.changed)
	}
	c.core = c.front.core
	c.watches = &watches{client: c.front.objects, changed: c.look, listed: c.lookIn, ends: map[string]context.CancelFunc{}}
	return c.watches.end
}

func (c *controller) add(o any) {
	s, ok := o.(*v1alpha1.EtcdStorage)
	if !ok {
		return
	}
	c.mu.Lock()
	for _, at := range destinations(s) {
		c.wanted[at] = s.Name
	}
	c.mu.Unlock()
	c.queue.Add(s.Name)
}

// target is an object that an EtcdStorage has the server write.
type target struct{ resource, namespace, name string }

func destinations(s *v1alpha1.EtcdStorage) []target {
	secret, configMap := s.Spec.ClientCertificate.Secret, s.Spec.Authority.ConfigMap
	return []target{{"secrets", secret.Namespace, secret.Name}, {"configmaps", configMap.Namespace, configMap.Name}}
}

// changed looks again at EtcdStorages whose destinations somebody has changed.
func (c *controller) changed(before, after *feed.Object) {
	o := after
	if o == nil {
		o = before
	}
	if o.Type.Resource.Group == "" {
		c.look(target{o.Type.Resource.Resource, o.Namespace, o.Name})
	}
}

// look looks again at the EtcdStorage of a destination.
func (c *controller) look(at target) {
	c.mu.Lock()
	name, ok := c.wanted[at]
	c.mu.Unlock()
	if ok {
		c.queue.Add(name)
	}
}

// lookIn looks again at all EtcdStorages with a destination in a namespace: one may have gone before it was watched.
func (c *controller) lookIn(namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, name := range c.wanted {
		if at.namespace == namespace {
			c.queue.Add(name)
		}
	}
}

// Enqueue implements dynamiccertificates.Listener: the authorities of the serving certificate have changed. The listener
// is that of the server, which cannot be taken back, and not that of one term of the controller.
func (l *lending) Enqueue() {
	c := l.controller.Load()
	if c == nil {
		return // another server has it, or it looks at everything when it begins
	}
	for _, name := range l.informer.GetStore().ListKeys() {
		c.queue.Add(name)
	}
}

// current is an EtcdStorage as the informer has it, or as it is now if data may be replaced or deleted for it: the
// informer may have it as it was before a move ended, whose data is in use by now. It is nil if there is none.
func (c *controller) current(ctx context.Context, name string) (*v1alpha1.EtcdStorage, error) {
	o, found, err := c.informer.GetStore().GetByKey(name)
	if err != nil || !found {
		return nil, err
	}
	s, ok := o.(*v1alpha1.EtcdStorage)
	if !ok {
		return nil, nil //nolint:nilnil // as documented
	}
	if s.DeletionTimestamp == nil && s.Status.Storage == chosen(s) && s.Status.PreviousStorage == "" {
		return s.DeepCopy(), nil
	}
	if s, err = c.get(ctx, name); apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // as documented
	}
	return s, err
}

// handle gives an EtcdStorage what it asks for.
func (c *controller) handle(ctx context.Context, name string) error {
	s, err := c.current(ctx, name)
	if err != nil || s == nil {
		return err
	}
	if s.DeletionTimestamp != nil {
		return c.erase(ctx, s)
	}
	if !slices.Contains(s.Finalizers, finalizer) {
		s.Finalizers = append(s.Finalizers, finalizer)
		return c.client.Put().Resource("etcdstorages").Name(name).Body(s).Do(ctx).Error() // its event comes here again
	}
	restoring := isRestoring(s)
	switch at := chosen(s); {
	case restoring: // it moves later
	case s.Status.Storage != at && c.tenants.store(at) != nil && c.tenants.store(s.Status.Storage) != nil:
		if moved, err := c.move(ctx, s, at); !moved || err != nil {
			return err
		}
	default:
		if err := c.tidy(ctx, s); err != nil {
			return err
		}
	}
	ready, due, failed := c.provide(ctx, s)
	if !due.IsZero() {
		c.queue.AddAfter(name, time.Until(due))
	}
	if restoring { // whoever restores says when that is over
		ready = *meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionReady)
	}
	if err := c.report(ctx, s, ready); err != nil {
		return err
	}
	return failed // it is tried again
}

// toldError is one that the condition of the object tells.
type toldError struct{ message string }

func (e toldError) Error() string { return e.message }

// chosen is the name of the storage that an EtcdStorage asks for.
func chosen(s *v1alpha1.EtcdStorage) string { return cmp.Or(s.Spec.Storage, ownStorage) }

// provide writes the certificates, and tells whether the storage can be used, and what failed.
func (c *controller) provide(ctx context.Context, s *v1alpha1.EtcdStorage) (ready metav1.Condition, due time.Time, failed error) {
	is := func(status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message, ObservedGeneration: s.Generation,
		}
	}
	if s.Status.Storage == "" {
		s.Status.Storage = chosen(s)
	}
	const unknown = "the operator of the server names no storage %q any more: ask for it to be named again"
	if name := s.Status.Storage; c.tenants.store(name) == nil {
		return is(metav1.ConditionFalse, v1alpha1.ReasonStorageUnknown, fmt.Sprintf(unknown, name)), due, nil
	}
	reason, message := v1alpha1.ReasonCertificatesWritten, "the storage can be used"
	due, err := c.write(ctx, s)
	if err != nil {
		reason, message = failure(s, err)
		failed = toldError{message}
		if reason != v1alpha1.ReasonDestinationUnknown {
			return is(metav1.ConditionFalse, reason, message), due, failed
		}
	}
	if name := chosen(s); c.tenants.store(name) == nil { // what is elsewhere can be used
		return is(metav1.ConditionFalse, v1alpha1.ReasonStorageUnknown,
			fmt.Sprintf(unknown+", or have spec.storage be %q, where the data is", name, s.Status.Storage)), due, failed
	}
	limits := c.part.Max.of(s.Spec.Limits)
	if u := s.Status.Used; u != nil && (u.Keys >= limits.Keys || u.Bytes >= limits.Bytes) {
		return is(metav1.ConditionFalse, v1alpha1.ReasonLimitReached, fmt.Sprintf(
			"%d of %d keys and %d of %d bytes are used: delete some, or raise spec.limits",
			u.Keys, limits.Keys, u.Bytes, limits.Bytes)), due, failed
	}
	return is(metav1.ConditionTrue, reason, message), due, failed
}

// write writes the Secret and the ConfigMap, and returns when to look at them again.
func (c *controller) write(ctx context.Context, s *v1alpha1.EtcdStorage) (time.Time, error) {
	if c.watches != nil {
		for _, at := range destinations(s) {
			c.watches.follow(ctx, at.namespace)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	signer, err := c.signer(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	at := s.Spec.ClientCertificate.Secret
	secrets := c.core.Secrets(at.Namespace)
	secret, err := present(secrets.Get(ctx, at.Name, metav1.GetOptions{}))
	if err != nil {
		return time.Time{}, err
	}
	want, due, err := clientSecret(secret, s, signer, now)
	switch {
	case err != nil:
	case want == nil:
	case secret == nil:
		_, err = secrets.Create(ctx, want, metav1.CreateOptions{})
	default:
		_, err = secrets.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return due, err
	}
	later, err := c.writeAuthority(ctx, s, now)
	if !later.IsZero() {
		due = earlier(due, later)
	}
	return due, err
}

func (c *controller) writeAuthority(ctx context.Context, s *v1alpha1.EtcdStorage, now time.Time) (time.Time, error) {
	ca := c.plane.Server().Authority()
	if ca == nil {
		return time.Time{}, errors.New("the authority of the serving certificate is not known to this server: name it in its configuration")
	}
	at := s.Spec.Authority.ConfigMap
	maps := c.core.ConfigMaps(at.Namespace)
	old, err := present(maps.Get(ctx, at.Name, metav1.GetOptions{}))
	if err != nil {
		return time.Time{}, err
	}
	want, due, err := authorityConfigMap(old, s, ca.CurrentCABundleContent(), now)
	switch {
	case err != nil:
	case want == nil:
	case old == nil:
		_, err = maps.Create(ctx, want, metav1.CreateOptions{})
	default:
		_, err = maps.Update(ctx, want, metav1.UpdateOptions{})
	}
	return due, err
}

// present returns nil for an object that does not exist.
func present[T any](o *T, err error) (*T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, unreadError{err}
	}
	return o, nil
}

// report writes the status, if it changed.
func (c *controller) report(ctx context.Context, s *v1alpha1.EtcdStorage, ready metav1.Condition) error {
	before := s.Status.DeepCopy()
	if o, found, _ := c.informer.GetStore().GetByKey(s.Name); found {
		if now, ok := o.(*v1alpha1.EtcdStorage); ok {
			before = now.Status.DeepCopy()
		}
	}
	s.Status.Endpoint, s.Status.ObservedGeneration = c.endpoint(c.plane.Server()), s.Generation
	meta.SetStatusCondition(&s.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(before, &s.Status) {
		return nil
	}
	return c.client.Put().Resource("etcdstorages").Name(s.Name).SubResource("status").Body(s).Do(ctx).Into(s)
}

// erase deletes what a tenant has, and then lets its object go.
func (c *controller) erase(ctx context.Context, s *v1alpha1.EtcdStorage) error {
	if !slices.Contains(s.Finalizers, finalizer) {
		return nil
	}
	if !s.Spec.KeepData {
		left, err := c.empty(ctx, s)
		if err != nil {
			return fmt.Errorf("delete the data: %w", err)
		}
		c.mu.Lock()
		now := time.Now()
		if left > 0 || c.emptied[s.Name].IsZero() {
			c.emptied[s.Name] = now
		}
		rest := settled - now.Sub(c.emptied[s.Name])
		c.mu.Unlock()
		if rest > 0 { // a write may be on its way
			c.queue.AddAfter(s.Name, rest)
			return nil
		}
	}
	if err := c.unwrite(ctx, s); err != nil && !isForgotten(s, err) {
		return c.stuck(ctx, s, err)
	}
	s.Finalizers = slices.DeleteFunc(s.Finalizers, func(f string) bool { return f == finalizer })
	if err := c.client.Put().Resource("etcdstorages").Name(s.Name).Body(s).Do(ctx).Error(); retry.UnlessGone(err) != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.emptied, s.Name)
	for _, at := range destinations(s) {
		delete(c.wanted, at)
		if c.watches != nil && !c.isWanted(at.namespace) {
			c.watches.leave(at.namespace)
		}
	}
	return nil
}

// empty deletes all data of a tenant, and returns how many keys there were.
func (c *controller) empty(ctx context.Context, s *v1alpha1.EtcdStorage) (n int, err error) {
	for _, name := range []string{s.Status.Storage, s.Status.PreviousStorage} {
		if name == "" {
			continue // it never had any there
		}
		at := c.tenants.store(name)
		if at == nil {
			return n, fmt.Errorf("the operator of the server names no storage %q any more: "+
				"set spec.keepData to delete the object only", name)
		}
		one, err := at.empty(ctx, s.Name)
		if n += one; err != nil {
			return n, err
		}
	}
	return n, nil
}

// unwrite deletes the objects that were written for an EtcdStorage.
func (c *controller) unwrite(ctx context.Context, s *v1alpha1.EtcdStorage) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	core := c.core
	at, authorities := s.Spec.ClientCertificate.Secret, s.Spec.Authority.ConfigMap
	secret, err1 := present(core.Secrets(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{}))
	if err1 == nil && secret != nil && owned(secret, s) {
		err1 = retry.UnlessGone(core.Secrets(at.Namespace).Delete(ctx, at.Name, unchanged(secret)))
	}
	m, err2 := present(core.ConfigMaps(authorities.Namespace).Get(ctx, authorities.Name, metav1.GetOptions{}))
	if err2 == nil && m != nil && owned(m, s) {
		err2 = retry.UnlessGone(core.ConfigMaps(authorities.Namespace).Delete(ctx, authorities.Name, unchanged(m)))
	}
	return errors.Join(err1, err2)
}

// unchanged has an object deleted only as it was read.
func unchanged(o metav1.Object) metav1.DeleteOptions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}
