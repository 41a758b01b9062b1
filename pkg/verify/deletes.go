package verify

import (
	"context"
	"maps"
	"net/http"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// remove deletes an object, with options. Some kinds wait for a controller if nobody says what
// becomes of what they own.
func (r *resource) remove(ctx context.Context, name string, options map[string]any) (*answer, error) {
	body := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
	maps.Copy(body, options)
	return r.do(ctx, ask{method: http.MethodDelete, path: r.path(name), body: body})
}

// unheld creates an object that nothing keeps from being deleted: the server may have put finalizers
// on it, for which a controller may be missing.
func (r *resource) unheld(ctx context.Context, change ...func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	made, err := r.made(ctx, change...)
	if err != nil || len(made.GetFinalizers()) == 0 {
		return made, err
	}
	a, err := r.patch(ctx, made.GetName(), mergePatch, `{"metadata":{"finalizers":null}}`, nil)
	if err != nil {
		return nil, err
	}
	return a.object(http.StatusOK)
}

func deleted(ctx context.Context, r *resource) error {
	if err := r.can("create", "get", "delete"); err != nil {
		return err
	}
	made, err := r.unheld(ctx)
	if err != nil {
		return err
	}
	a, err := r.remove(ctx, made.GetName(), map[string]any{"gracePeriodSeconds": 0})
	if err != nil {
		return err
	}
	if err := a.is(http.StatusOK, http.StatusAccepted); err != nil {
		return err
	}
	if a, err = r.remove(ctx, made.GetName(), nil); err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonNotFound, http.StatusNotFound)
}

func deleteOther(ctx context.Context, r *resource) error {
	return r.deleteUnless(ctx, map[string]any{"uid": "00000000-0000-0000-0000-000000000000"})
}

func deleteStale(ctx context.Context, r *resource) error {
	return r.deleteUnless(ctx, map[string]any{"resourceVersion": "1"})
}

func (r *resource) deleteUnless(ctx context.Context, preconditions map[string]any) error {
	if err := r.can("create", "get", "delete"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	a, err := r.remove(ctx, made.GetName(), map[string]any{"preconditions": preconditions})
	if err != nil {
		return err
	}
	if err := a.refuses(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	_, err = r.get(ctx, made.GetName())
	return err
}

func finalized(ctx context.Context, r *resource) error {
	if err := r.can("create", "get", "patch", "delete"); err != nil {
		return err
	}
	made, err := r.made(ctx, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"verify.example.com/hold"}) })
	if err != nil {
		return err
	}
	a, err := r.remove(ctx, made.GetName(), nil)
	if err != nil {
		return err
	}
	if err := a.is(http.StatusOK, http.StatusAccepted); err != nil {
		return err
	}
	got, err := r.get(ctx, made.GetName())
	if err != nil {
		return err
	}
	if got.GetDeletionTimestamp() == nil {
		return &mismatch{a.sent, "no deletionTimestamp", "one"}
	}
	if a, err = r.patch(ctx, made.GetName(), mergePatch, `{"metadata":{"finalizers":null}}`, nil); err != nil {
		return err
	}
	if err := a.is(http.StatusOK); err != nil {
		return err
	}
	if a, err = r.do(ctx, ask{method: http.MethodGet, path: r.path(made.GetName())}); err != nil {
		return err
	}
	return a.is(http.StatusNotFound)
}

func statusApart(ctx context.Context, r *resource) error {
	if err := r.can("create", "get", "update"); err != nil {
		return err
	}
	if !r.status && r.hasField(ctx, "status") {
		return &mismatch{"GET " + prefix(r.gvr.GroupVersion()), "no " + r.gvr.Resource + "/status", "one, as objects have a status"}
	}
	if !r.status {
		return skip("it has no status")
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	before := made.Object["status"]
	change := made.DeepCopy()
	change.Object["status"] = map[string]any{"conditions": []any{}, "observedGeneration": int64(7)}
	labelled("verify", "spec")(change)
	a, err := r.put(ctx, made.GetName(), change)
	if err != nil {
		return err
	}
	got, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(got.Object["status"], before) {
		return a.wrong("the status as it was: %v", before)
	}
	change = got.DeepCopy() // Kubernetes lets the status of some kinds change metadata, too
	delete(change.Object, "spec")
	if a, err = r.do(ctx, ask{method: http.MethodPut, path: r.path(made.GetName(), "status"), body: change.Object}); err != nil {
		return err
	}
	if got, err = a.object(http.StatusOK); err != nil {
		return err
	}
	if !reflect.DeepEqual(got.Object["spec"], made.Object["spec"]) {
		return a.wrong("the spec as it was: %v", made.Object["spec"])
	}
	return nil
}
