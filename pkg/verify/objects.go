package verify

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func resourceChecks() []resourceCheck {
	return append(append(objectChecks(), listChecks()...), watchChecks()...)
}

func objectChecks() []resourceCheck {
	return []resourceCheck{
		{"create", "a created object has a UID, a version, and a time", created},
		{"version-integer", "resource versions are integers (KEP-5504)", versionIsInteger},
		{"get", "an object is read as it was written", readAsWritten},
		{"create-exists", "a second create of a name is 409 AlreadyExists", createTwice},
		{"create-generated-name", "generateName makes a name", generatedName},
		{"create-other-namespace", "an object of another namespace than the path's is 400", otherNamespace},
		{"create-bad-name", "a name that cannot be one is 422 Invalid", badName},
		{"get-absent", "an object that is not there is 404 NotFound, with its name", getAbsent},
		{"update", "an update changes the version, and not the UID", updated},
		{"update-same", "an update that changes nothing keeps the version, the second time", updatedWithTheSame},
		{"update-stale", "an update of an old version is 409 Conflict", updatedStale},
		{"update-other-uid", "an update of another object of the name is 409 Conflict", updatedOther},
		{"update-other-name", "an update whose name is not the path's is 400", updatedOtherName},
		{"patch-merge", "a merge patch changes what it has", patchMerge},
		{"patch-json", "a JSON patch changes what it has", patchJSON},
		{"patch-json-test", "a JSON patch whose test fails is 422", patchTest},
		{"patch-stale", "a patch with an old version is 409 Conflict", patchStale},
		{"apply", "server-side apply creates, and notes who owns a field", applied},
		{"apply-conflict", "an apply of another's field is 409 with a cause, and goes through by force", applyConflict},
		{"dry-run-create", "a dry run creates nothing", dryRunCreate},
		{"dry-run-delete", "a dry run deletes nothing", dryRunDelete},
		{"dry-run-unknown", "a dry run that is not All is refused", dryRunUnknown},
		{"delete", "a deleted object is gone, and a second delete is 404", deleted},
		{"delete-other-uid", "a delete with another UID is 409 Conflict", deleteOther},
		{"delete-stale", "a delete with an old version is 409 Conflict", deleteStale},
		{"finalizers", "an object with a finalizer waits until it has none", finalized},
		{"status-apart", "a write of an object leaves its status, and one of the status, which is at /status, the rest", statusApart},
		{"body-broken", "a body that is no JSON is 400", bodyBroken},
		{"body-type", "a body of an unknown type is 415", bodyType},
		{"field-unknown", "a strict write with an unknown field is refused", fieldUnknown},
		{"verb-absent", "a verb that discovery does not list is 405", verbAbsent},
	}
}

func created(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	o := r.fresh()
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), body: o.Object})
	if err != nil {
		return err
	}
	got, err := a.object(http.StatusCreated)
	if err != nil {
		return err
	}
	if at := got.GetCreationTimestamp(); got.GetUID() == "" || got.GetResourceVersion() == "" || at.IsZero() ||
		got.GetName() != o.GetName() || got.GetNamespace() != r.namespace || got.GetKind() != r.kind {
		return a.wrong("a UID, a resourceVersion, a creationTimestamp, its name, namespace and kind")
	}
	return nil
}

func versionIsInteger(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	first, err := r.made(ctx)
	if err != nil {
		return err
	}
	second, err := r.made(ctx)
	if err != nil {
		return err
	}
	a, err1 := strconv.ParseUint(first.GetResourceVersion(), 10, 64)
	b, err2 := strconv.ParseUint(second.GetResourceVersion(), 10, 64)
	if err1 != nil || err2 != nil || a >= b || strings.HasPrefix(first.GetResourceVersion(), "0") {
		return &mismatch{"two creates", first.GetResourceVersion() + " and " + second.GetResourceVersion(), "integers that grow"}
	}
	return nil
}

// same tells whether two objects are equal but for who wrote which field.
func same(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	a.SetManagedFields(nil)
	b.SetManagedFields(nil)
	return reflect.DeepEqual(a.Object, b.Object)
}

func readAsWritten(ctx context.Context, r *resource) error {
	if err := r.can("create", "get"); err != nil {
		return err
	}
	made, err := r.made(ctx, labelled("verify", "get"))
	if err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(made.GetName())})
	if err != nil {
		return err
	}
	got, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	if !same(made, got) {
		return a.wrong("what the create answered: %v", made.Object)
	}
	return nil
}

func createTwice(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	again := r.fresh(func(o *unstructured.Unstructured) { o.SetName(made.GetName()) })
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), body: again.Object})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonAlreadyExists, http.StatusConflict)
}

func generatedName(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	got, err := r.made(ctx, func(o *unstructured.Unstructured) { o.SetName(""); o.SetGenerateName("generated-") })
	if err != nil {
		return err
	}
	if !strings.HasPrefix(got.GetName(), "generated-") || got.GetName() == "generated-" {
		return &mismatch{"POST with generateName generated-", got.GetName(), "a name that begins so"}
	}
	return nil
}

func otherNamespace(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	o := r.fresh(func(o *unstructured.Unstructured) { o.SetNamespace(r.namespace + "-other") })
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), body: o.Object})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonBadRequest, http.StatusBadRequest)
}

func badName(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	o := r.fresh(func(o *unstructured.Unstructured) { o.SetName("a/b") })
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), body: o.Object})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonInvalid, http.StatusUnprocessableEntity)
}

func getAbsent(ctx context.Context, r *resource) error {
	if err := r.can("get"); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path("absent")})
	if err != nil {
		return err
	}
	if err := a.refuses(metav1.StatusReasonNotFound, http.StatusNotFound); err != nil {
		return err
	}
	o, err := a.object(http.StatusNotFound)
	if err != nil {
		return err
	}
	name, _, _ := unstructured.NestedString(o.Object, "details", "name")
	kind, _, _ := unstructured.NestedString(o.Object, "details", "kind")
	if name != "absent" || kind != r.gvr.Resource {
		return a.wrong("details with name absent and kind %s", r.gvr.Resource)
	}
	return nil
}

// put updates an object.
func (r *resource) put(ctx context.Context, name string, o *unstructured.Unstructured) (*answer, error) {
	return r.do(ctx, ask{method: http.MethodPut, path: r.path(name), body: o.Object})
}

func updated(ctx context.Context, r *resource) error {
	if err := r.can("create", "update"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	change := made.DeepCopy()
	labelled("verify", "update")(change)
	a, err := r.put(ctx, made.GetName(), change)
	if err != nil {
		return err
	}
	got, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	if got.GetResourceVersion() == made.GetResourceVersion() || got.GetUID() != made.GetUID() || got.GetLabels()["verify"] != "update" ||
		!reflect.DeepEqual(got.GetCreationTimestamp(), made.GetCreationTimestamp()) {
		return a.wrong("another resourceVersion, the label, and UID %s and creationTimestamp as before", made.GetUID())
	}
	return nil
}

func updatedWithTheSame(ctx context.Context, r *resource) error {
	if err := r.can("create", "update"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	a, err := r.put(ctx, made.GetName(), made)
	if err != nil {
		return err
	}
	first, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	// The first may say who owns fields that the server set as it created the object.
	if a, err = r.put(ctx, made.GetName(), first); err != nil {
		return err
	}
	got, err := a.object(http.StatusOK)
	if err != nil {
		return err
	}
	if got.GetResourceVersion() != first.GetResourceVersion() {
		return a.wrong("resourceVersion %s", first.GetResourceVersion())
	}
	return nil
}

// changed makes an object and changes it, and returns both. What it returns last has no finalizers
// of the server, for which a controller may be missing.
func (r *resource) changed(ctx context.Context) (before, after *unstructured.Unstructured, err error) {
	if before, err = r.made(ctx); err != nil {
		return nil, nil, err
	}
	change := before.DeepCopy()
	labelled("verify", "changed")(change)
	change.SetFinalizers(nil)
	a, err := r.put(ctx, before.GetName(), change)
	if err != nil {
		return nil, nil, err
	}
	after, err = a.object(http.StatusOK)
	return before, after, err
}

func updatedStale(ctx context.Context, r *resource) error {
	if err := r.can("create", "update"); err != nil {
		return err
	}
	before, _, err := r.changed(ctx)
	if err != nil {
		return err
	}
	labelled("verify", "stale")(before)
	a, err := r.put(ctx, before.GetName(), before)
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonConflict, http.StatusConflict)
}

func updatedOther(ctx context.Context, r *resource) error {
	if err := r.can("create", "update"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	made.SetUID("00000000-0000-0000-0000-000000000000")
	labelled("verify", "other")(made)
	a, err := r.put(ctx, made.GetName(), made)
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonConflict, http.StatusConflict)
}

func updatedOtherName(ctx context.Context, r *resource) error {
	if err := r.can("create", "update"); err != nil {
		return err
	}
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	name := made.GetName()
	made.SetName("another")
	a, err := r.put(ctx, name, made)
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonBadRequest, http.StatusBadRequest)
}

func bodyBroken(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), body: []byte(`{"metadata":`)})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonBadRequest, http.StatusBadRequest)
}

func bodyType(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{
		method: http.MethodPost, path: r.path(), body: []byte("<object/>"), header: map[string]string{"Content-Type": "application/xml"},
	})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonUnsupportedMediaType, http.StatusUnsupportedMediaType)
}

func fieldUnknown(ctx context.Context, r *resource) error {
	if err := r.can("create"); err != nil {
		return err
	}
	o := r.fresh()
	o.Object["verifyUnknown"] = true
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), query: url.Values{"fieldValidation": {"Strict"}}, body: o.Object})
	if err != nil {
		return err
	}
	return a.refuses("", http.StatusBadRequest, http.StatusUnprocessableEntity)
}

func verbAbsent(ctx context.Context, r *resource) error {
	paths := map[string]ask{
		"deletecollection": {method: http.MethodDelete, path: r.path(), query: url.Values{"dryRun": {"All"}}},
		"delete":           {method: http.MethodDelete, path: r.path("absent")},
		"update":           {method: http.MethodPut, path: r.path("absent"), body: map[string]any{}},
		"patch": {
			method: http.MethodPatch, path: r.path("absent"), body: map[string]any{}, header: map[string]string{"Content-Type": mergePatch},
		},
		"create": {method: http.MethodPost, path: r.path(), query: url.Values{"dryRun": {"All"}}, body: map[string]any{}},
	}
	tried := false
	for verb, request := range paths {
		if r.lists[r.gvr.GroupVersion()] == nil || slices.Contains(r.verbs, verb) {
			continue
		}
		tried = true
		a, err := r.do(ctx, request)
		if err != nil {
			return err
		}
		if err := a.is(http.StatusMethodNotAllowed, http.StatusNotFound); err != nil {
			return err
		}
		var s metav1.Status
		if json.Unmarshal(a.body, &s) == nil && s.Details != nil && s.Details.Name == "absent" {
			return a.wrong("405, as %s is not listed, and no search for the object", verb)
		}
	}
	if !tried {
		return skip("it has all verbs")
	}
	return nil
}
