package verify

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// patch patches an object.
func (r *resource) patch(ctx context.Context, name, contentType, body string, query url.Values) (*answer, error) {
	return r.do(ctx, ask{
		method: http.MethodPatch, path: r.path(name), query: query, body: []byte(body),
		header: map[string]string{"Content-Type": contentType},
	})
}

const (
	mergePatch = "application/merge-patch+json"
	jsonPatch  = "application/json-patch+json"
	applyPatch = "application/apply-patch+yaml"
)

func patchMerge(ctx context.Context, r *resource) error {
	return r.patched(ctx, mergePatch, `{"metadata":{"annotations":{"verify":"patched"}}}`)
}

func patchJSON(ctx context.Context, r *resource) error {
	return r.patched(ctx, jsonPatch, `[{"op":"add","path":"/metadata/annotations","value":{"verify":"patched"}}]`)
}

func (r *resource) patched(ctx context.Context, contentType, body string) error {
	if err := r.can("create", "patch"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	a, err := r.patch(ctx, made.GetName(), contentType, body, nil)
	if err != nil {
		return err
	}
	got, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	if got.GetAnnotations()["verify"] != "patched" || got.GetResourceVersion() == made.GetResourceVersion() ||
		got.GetUID() != made.GetUID() {
		return a.wrong("annotation verify: patched, another version and UID %s", made.GetUID())
	}
	return nil
}

func patchTest(ctx context.Context, r *resource) error {
	if err := r.can("create", "patch"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	a, err := r.patch(ctx, made.GetName(), jsonPatch, `[{"op":"test","path":"/metadata/name","value":"another"}]`, nil)
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity)
}

func patchStale(ctx context.Context, r *resource) error {
	if err := r.can("create", "update", "patch"); err != nil {
		return err
	}
	before, _, err := r.changed(ctx)
	if err != nil {
		return err
	}
	a, err := r.patch(ctx, before.GetName(), mergePatch,
		fmt.Sprintf(`{"metadata":{"resourceVersion":%q,"labels":{"verify":"stale"}}}`, before.GetResourceVersion()), nil)
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonConflict, http.StatusConflict)
}

// apply applies an object as a manager, which owns a label.
func (r *resource) apply(ctx context.Context, o *unstructured.Unstructured, manager, value string, force bool) (*answer, error) {
	o = o.DeepCopy()
	labelled("verify", value)(o)
	content, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	query := url.Values{"fieldManager": {manager}}
	if force {
		query.Set("force", "true")
	}
	return r.patch(ctx, o.GetName(), applyPatch, string(content), query)
}

func applied(ctx context.Context, r *resource) error {
	if err := r.can("create", "patch"); err != nil {
		return err
	}
	a, err := r.apply(ctx, r.fresh(), "verify", "applied", false)
	if err != nil {
		return err
	}
	got, err := a.object(http.StatusCreated, http.StatusOK)
	if err != nil {
		return err
	}
	for _, m := range got.GetManagedFields() {
		if m.Manager == "verify" && m.Operation == metav1.ManagedFieldsOperationApply &&
			strings.Contains(m.FieldsV1.GetRawString(), "f:verify") {
			return nil
		}
	}
	return a.wrong("managedFields with manager verify, operation Apply and the label")
}

func applyConflict(ctx context.Context, r *resource) error {
	if err := r.can("create", "patch"); err != nil {
		return err
	}
	o := r.fresh()
	a, err := r.apply(ctx, o, "one", "one", false)
	if err != nil {
		return err
	}
	if err := a.is(http.StatusCreated, http.StatusOK); err != nil {
		return err
	}
	if a, err = r.apply(ctx, o, "two", "two", false); err != nil {
		return err
	}
	if err := a.refuses(metav1.StatusReasonConflict, http.StatusConflict); err != nil {
		return err
	}
	if !strings.Contains(string(a.body), "FieldManagerConflict") {
		return a.wrong("a cause FieldManagerConflict")
	}
	if a, err = r.apply(ctx, o, "two", "two", true); err != nil {
		return err
	}
	return a.is(http.StatusOK)
}

func dryRunCreate(ctx context.Context, r *resource) error {
	if err := r.can("create", "get"); err != nil {
		return err
	}
	o := r.fresh()
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), query: url.Values{"dryRun": {"All"}}, body: o.Object})
	if err != nil {
		return err
	}
	if err := a.is(http.StatusCreated); err != nil {
		return err
	}
	if a, err = r.do(ctx, ask{method: http.MethodGet, path: r.path(o.GetName())}); err != nil {
		return err
	}
	return a.is(http.StatusNotFound)
}

func dryRunDelete(ctx context.Context, r *resource) error {
	if err := r.can("create", "get", "delete"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodDelete, path: r.path(made.GetName()), query: url.Values{"dryRun": {"All"}}})
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
	if got.GetResourceVersion() != made.GetResourceVersion() {
		return a.wrong("no change of the object")
	}
	return nil
}

func dryRunUnknown(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), query: url.Values{"dryRun": {"Some"}}, body: r.fresh().Object})
	if err != nil {
		return err
	}
	return a.refuses("", http.StatusBadRequest, http.StatusUnprocessableEntity)
}
