package terminator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/catalog"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
)

// LeftBehind is an annotation of an APIService: the namespaces that were removed while its
// server was away, and when, as a JSON object. What the server holds of them is deleted when it
// is back.
const LeftBehind = "sailplane.dev/left-behind"

const (
	// mostLeftBehind is how many namespaces an APIService remembers; the oldest are forgotten.
	mostLeftBehind = 2000
	// orphansPause is the pause after a try on what was left behind that failed.
	orphansPause = 5 * time.Second
	// togetherFor is how long changes are waited for that come together: all APIServices are
	// listed after each, and when a hundred are made known, there are hundreds of changes.
	togetherFor = time.Second
)

// orphans are the namespaces of the annotation.
type orphans map[string]time.Time

func orphansOf(service *unstructured.Unstructured) orphans {
	all := orphans{}
	_ = json.Unmarshal([]byte(service.GetAnnotations()[LeftBehind]), &all) // of somebody else's making: none
	return all
}

// write puts the annotation on an APIService that is as it was read.
func (o orphans) write(ctx context.Context, services dynamic.ResourceInterface, service *unstructured.Unstructured) error {
	for len(o) > mostLeftBehind {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(o)), func(a, b string) int { return o[a].Compare(o[b]) })
		delete(o, oldest)
	}
	var value any // nil removes it
	if len(o) > 0 {
		content, err := json.Marshal(o)
		if err != nil {
			return err
		}
		value = string(content)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": service.GetResourceVersion(), "annotations": map[string]any{LeftBehind: value},
	}})
	if err != nil {
		return err
	}
	_, err = services.Patch(ctx, service.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return retry.UnlessGone(err)
}

// leaveBehind notes that a namespace goes, and that servers hold what they hold of it.
func (t *terminator) leaveBehind(ctx context.Context, namespace string, failing []schema.GroupVersion) error {
	services, err := t.apiServices()
	if err != nil {
		return err
	}
	var errs []error
	for _, gv := range failing {
		service, err := services.Get(ctx, gv.Version+"."+gv.Group, metav1.GetOptions{})
		if err == nil {
			all := orphansOf(service)
			all[namespace] = time.Now().UTC().Truncate(time.Second)
			err = all.write(ctx, services, service)
		}
		errs = append(errs, retry.UnlessGone(err))
	}
	return errors.Join(errs...)
}

func (t *terminator) apiServices() (dynamic.ResourceInterface, error) {
	client, err := dynamic.NewForConfig(t.catalog.Config)
	if err != nil {
		return nil, err
	}
	return client.Resource(catalog.APIServices()), nil
}

// collect deletes what was left behind whenever a server may be back, until the context ends.
func (t *terminator) collect(ctx context.Context) {
	for ctx.Err() == nil {
		changed, again := t.catalog.Changed(), (<-chan time.Time)(nil)
		if t.elsewhere.Any != nil && t.elsewhere.Any() {
			if err := t.collectAll(ctx); err != nil && ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "What servers hold of namespaces that are gone is not deleted yet")
				again = time.After(orphansPause)
			}
		}
		select {
		case <-changed:
			select {
			case <-time.After(togetherFor):
			case <-ctx.Done():
			}
		case <-again:
		case <-ctx.Done():
		}
	}
}

// collectAll tries each APIService with something left behind that is available.
func (t *terminator) collectAll(ctx context.Context) error {
	services, err := t.apiServices()
	if err != nil {
		return err
	}
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return retry.UnlessGone(err)
	}
	var errs []error
	for i := range list.Items {
		service := &list.Items[i]
		left := orphansOf(service)
		if len(left) == 0 || !catalog.Available(service) {
			continue
		}
		gv := catalog.GroupVersionOf(service)
		held, err := t.ask(ctx, gv)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for namespace, when := range left {
			if err := t.deleteOrphans(ctx, held, namespace, when); err != nil {
				errs = append(errs, fmt.Errorf("%s, namespace %s: %w", gv, namespace, err))
				continue
			}
			delete(left, namespace)
			klog.FromContext(ctx).Info("Deleted what a server held of a namespace that is gone",
				"namespace", namespace, "groupVersion", gv.String())
		}
		errs = append(errs, left.write(ctx, services, service))
	}
	return errors.Join(errs...)
}

// deleteOrphans deletes objects of a namespace that was removed. If there is another one of
// its name, what is as old as the removed one goes: its objects were made before the server
// was away for as long as the patience, and others when it was back, so that the clocks of the
// two may differ by half of that.
func (t *terminator) deleteOrphans(ctx context.Context, held []catalog.Target, namespace string, when time.Time) error {
	_, err := t.namespaces.Get(ctx, namespace, metav1.GetOptions{})
	again := err == nil
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	for _, res := range held {
		objects := t.objects.Resource(res.GroupVersionResource).Namespace(namespace)
		err := pages(ctx, objects, func(o *metav1.PartialObjectMetadata) error {
			if again && o.CreationTimestamp.After(when.Add(-t.elsewhere.Patience/2)) {
				return nil
			}
			uid, background := o.UID, metav1.DeletePropagationBackground
			err := objects.Delete(ctx, o.Name, metav1.DeleteOptions{
				Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &background,
			})
			if apierrors.IsConflict(err) { // another object has the name
				return nil
			}
			return retry.UnlessGone(err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
