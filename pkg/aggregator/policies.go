package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/pkg/internal/turns"
)

const (
	// maxBody is how long a body may be that admission sees, as for objects of this plane.
	maxBody = 3 << 20
	// maxAnswer is how long an object may be that a server has: with what it adds.
	maxAnswer = 2 * maxBody
	// patchTries is how often a patch is made anew because the object changed meanwhile.
	patchTries = 5
)

// write is a request that changes an object of another server, as admission of this plane
// sees it.
type write struct {
	*router
	*server

	request *http.Request
	info    *request.RequestInfo
	who     user.Info
	gvr     schema.GroupVersionResource
	body    []byte // JSON
}

// hand hands a request on whose hop is in its context; what changes something, as the
// admission of this plane leaves it, where the operator wants that.
func (x *router) hand(w http.ResponseWriter, r *http.Request, s *server) {
	wr, err := x.writeOf(r, s)
	switch {
	case err != nil:
		answerError(w, r, err)
	case wr == nil:
		s.handOn(w, r)
	case wr.info.Verb == "patch":
		wr.patch(w)
	default:
		next, err := wr.admit()
		if err != nil {
			answerError(w, r, err)
			return
		}
		wr.send(w, next)
	}
}

// send hands a request on. Meanwhile other large requests have their turns; who goes on
// computing afterwards resumes.
func (w *write) send(answer http.ResponseWriter, r *http.Request) (resume func()) {
	rested := turns.From(r.Context()).Rest()
	w.handOn(answer, r)
	return func() { rested(r.Context()) }
}

// writeOf reads what a request changes; nil if admission does not see it.
func (x *router) writeOf(r *http.Request, s *server) (*write, error) {
	info, ok := request.RequestInfoFrom(r.Context())
	if s.given == nil || !s.given.Admission || !ok || !info.IsResourceRequest || streamed(info.Subresource) {
		return nil, nil // what asks for an upgrade may be a write all the same
	}
	who, _ := request.UserFrom(r.Context())
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	wr := &write{router: x, server: s, request: r, info: info, who: who, gvr: gvr}
	switch info.Verb {
	case "delete", "deletecollection":
		return wr, nil
	case "create", "update", "patch":
	default:
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxBody {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("limit is %d", maxBody))
	}
	turns.From(r.Context()).TakeFor(r.Context(), int64(len(body)))
	wr.body, err = asJSON(body, r.Header.Get("Content-Type"))
	return wr, err
}

// asJSON is a body of any type that says by itself what its fields are.
func asJSON(body []byte, contentType string) ([]byte, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if contentType != "" && err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("Content-Type %q: %v", contentType, err))
	}
	switch media {
	case "", runtime.ContentTypeJSON, string(types.JSONPatchType), string(types.MergePatchType), string(types.StrategicMergePatchType):
		if !json.Valid(body) {
			return nil, apierrors.NewBadRequest("the body is not JSON")
		}
		return body, nil
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, apierrors.NewBadRequest("the body is not YAML: " + err.Error())
		}
		return body, nil
	case runtime.ContentTypeCBOR, string(types.ApplyCBORPatchType):
		var content any
		if err := direct.Unmarshal(body, &content); err != nil {
			return nil, apierrors.NewBadRequest("the body is not CBOR: " + err.Error())
		}
		return json.Marshal(content)
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
		Message: fmt.Sprintf("admission sees what is written to this server, and cannot read %s: send JSON", media),
	}}
}

// admit has admission see a create, an update or a delete, and returns what is handed on.
func (w *write) admit() (*http.Request, error) {
	if w.info.Verb == "deletecollection" {
		return w.request, w.seen(nil, nil, admission.Delete, &metav1.DeleteOptions{})
	}
	var old *unstructured.Unstructured
	if w.info.Verb != "create" {
		var err error
		if old, err = w.old(); err != nil {
			return nil, err
		}
	}
	if w.info.Verb == "delete" {
		return w.request, w.seen(nil, old, admission.Delete, &metav1.DeleteOptions{})
	}
	object, err := w.object(w.body)
	if err != nil {
		return nil, err
	}
	if old == nil {
		err = w.seen(object, nil, admission.Create, &metav1.CreateOptions{})
	} else {
		err = w.seen(object, old, admission.Update, &metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, err
	}
	content, err := object.MarshalJSON()
	if err != nil {
		return nil, err
	}
	return w.with(content, runtime.ContentTypeJSON, false), nil
}

// patch has admission see what a patch comes to, which the server says in a dry run, and
// hands on what makes of the object, as it was then, what admission made of it. An object
// that changed meanwhile is patched anew, as an API server does with its own.
func (w *write) patch(answer http.ResponseWriter) {
	for try := 1; ; try++ {
		next, refused, err := w.patched()
		switch {
		case err != nil:
			answerError(answer, w.request, err)
			return
		case refused != nil:
			refused.writeTo(answer)
			return
		case try == patchTries:
			w.send(answer, next)
			return
		}
		a := &again{ResponseWriter: answer, header: http.Header{}}
		resume := w.send(a, next)
		if !a.conflicts {
			return
		}
		resume()
	}
}

// patched returns the patch to hand on, or the answer of a server that refuses it.
func (w *write) patched() (next *http.Request, refused *recorded, err error) {
	old, err := w.old()
	if err != nil {
		return nil, nil, err
	}
	dry := &recorded{header: http.Header{}, code: http.StatusOK}
	sent := w.with(w.body, w.request.Header.Get("Content-Type"), true)
	sent.Header.Set("Accept", runtime.ContentTypeJSON)
	sent.Header.Del("Accept-Encoding")
	w.send(dry, sent)()
	if dry.long {
		return nil, nil, w.tooLong()
	}
	if dry.code < http.StatusOK || dry.code >= http.StatusMultipleChoices {
		return nil, dry, nil
	}
	turns.From(w.request.Context()).TakeFor(w.request.Context(), int64(dry.body.Len()))
	became, err := w.object(dry.body.Bytes())
	if err != nil {
		return nil, nil, badGateway(fmt.Sprintf("server %s answered a dry run with what is no object: %v", w.server, err))
	}
	before := became.DeepCopy()
	if old == nil {
		err = w.seen(became, nil, admission.Create, &metav1.CreateOptions{})
	} else {
		err = w.seen(became, old, admission.Update, &metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, nil, err
	}
	media, _, _ := mime.ParseMediaType(w.request.Header.Get("Content-Type"))
	applies := media == string(types.ApplyYAMLPatchType) || media == string(types.ApplyCBORPatchType)
	from := old
	if applies || old == nil {
		from = before // what is applied stays the applier's, and so becomes what admission adds
	}
	patch, err := difference(from, became)
	if err != nil {
		return nil, nil, err
	}
	kind := string(types.MergePatchType)
	if applies {
		kind = string(types.ApplyYAMLPatchType)
		if field := removed(patch, w.body); field != "" {
			return nil, nil, apierrors.NewConflict(w.gvr.GroupResource(), w.info.Name, fmt.Errorf(
				"admission removes %s, which is not in what is applied: others have it, and applying cannot take it from them", field))
		}
		if patch, err = jsonpatch.MergePatch(w.body, patch); err != nil {
			return nil, nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if old != nil {
		as := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q}}`, before.GetResourceVersion())
		if patch, err = jsonpatch.MergePatch(patch, as); err != nil {
			return nil, nil, err
		}
	}
	return w.with(patch, kind, false), nil, nil
}

// difference is the merge patch that makes one object the other. Who manages which fields is
// the server's matter.
func difference(from, to *unstructured.Unstructured) ([]byte, error) {
	contents := make([][]byte, 0, 2)
	for _, one := range []*unstructured.Unstructured{from, to} {
		one = one.DeepCopy()
		one.SetManagedFields(nil)
		content, err := one.MarshalJSON()
		if err != nil {
			return nil, err
		}
		contents = append(contents, content)
	}
	return jsonpatch.CreateMergePatch(contents[0], contents[1])
}

// removed is a field that a merge patch removes and a document does not have, "" if there is
// none.
func removed(patch, document []byte) string {
	var changes, has map[string]any
	if json.Unmarshal(patch, &changes) != nil || json.Unmarshal(document, &has) != nil {
		return ""
	}
	var look func(path string, changes, has map[string]any) string
	look = func(path string, changes, has map[string]any) string {
		for _, name := range slices.Sorted(maps.Keys(changes)) {
			if changes[name] == nil && has[name] == nil {
				return path + "." + name
			}
			if below, ok := changes[name].(map[string]any); ok {
				inner, _ := has[name].(map[string]any)
				if found := look(path+"."+name, below, inner); found != "" {
					return found
				}
			}
		}
		return ""
	}
	return look("", changes, has)
}

// seen has admission see a write, which may change the object.
func (w *write) seen(object, old *unstructured.Unstructured, o admission.Operation, options runtime.Object) error {
	kind := w.kindOf(w.gvr)
	var now, before runtime.Object // not interfaces with nil in them
	if object != nil {
		now, kind = object, object.GroupVersionKind()
	}
	if old != nil {
		before = old
	}
	dryRun := w.request.URL.Query().Has("dryRun")
	a := admission.NewAttributesRecord(
		now, before, kind, w.info.Namespace, w.info.Name, w.gvr, w.info.Subresource, o, options, dryRun, w.who)
	all := w.plane.Admission()
	if m, ok := all.(admission.MutationInterface); ok && m.Handles(o) {
		if err := m.Admit(w.request.Context(), a, untyped{}); err != nil {
			return err
		}
	}
	if v, ok := all.(admission.ValidationInterface); ok && v.Handles(o) {
		return v.Validate(w.request.Context(), a, untyped{})
	}
	return nil
}

// old is the object as the server has it; nil if it has none.
func (w *write) old() (*unstructured.Unstructured, error) {
	ctx := w.request.Context()
	rested := turns.From(ctx).Rest()
	content, err := w.read()
	rested(ctx)
	if err != nil || content == nil {
		return nil, err
	}
	turns.From(ctx).TakeFor(ctx, int64(len(content)))
	return w.object(content)
}

// read asks the server for the object.
func (w *write) read() ([]byte, error) {
	response, asked, err := w.get(w.request.Context(), w.request.URL.Path, http.Header{"Accept": {runtime.ContentTypeJSON}})
	if err != nil {
		return nil, unavailable(w.gvr.GroupVersion(), w.server)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusMethodNotAllowed: // no such object, or a sub-resource that is only written
		return nil, nil
	default:
		return nil, badGateway((&statusError{asked, response.StatusCode}).Error())
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, unavailable(w.gvr.GroupVersion(), w.server)
	case len(content) > maxAnswer:
		return nil, w.tooLong()
	}
	return content, nil
}

func (w *write) tooLong() error {
	return badGateway(fmt.Sprintf("the object that server %s has is longer than %d bytes", w.server, maxAnswer))
}

// object reads an object, whose kind is the resource's if it says none.
func (w *write) object(content []byte) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(content); err == nil {
		return object, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil || fields == nil {
		return nil, apierrors.NewBadRequest("the body is no object")
	}
	kind := w.kindOf(w.gvr)
	for name, value := range map[string]string{"apiVersion": kind.GroupVersion().String(), "kind": kind.Kind} {
		if fields[name] == nil {
			fields[name] = value
		}
	}
	content, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	if err := object.UnmarshalJSON(content); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return object, nil
}

// with is the request with another body. A dry run has a hop of its own.
func (w *write) with(body []byte, contentType string, dryRun bool) *http.Request {
	ctx := w.request.Context()
	if dryRun {
		h := *hopOf(ctx)
		to := *h.to
		query := to.Query()
		query["dryRun"] = []string{metav1.DryRunAll}
		to.RawQuery = query.Encode()
		h.to = &to
		ctx = context.WithValue(ctx, hopKey{}, &h)
	}
	r := w.request.Clone(ctx)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.Header.Del("Content-Encoding")
	return r
}

// recorded is an answer that is read here.
type recorded struct {
	header http.Header
	code   int
	body   bytes.Buffer
	long   bool // longer than maxAnswer, of which body is the beginning
}

// Header implements http.ResponseWriter.
func (r *recorded) Header() http.Header { return r.header }

// WriteHeader implements http.ResponseWriter.
func (r *recorded) WriteHeader(code int) {
	if code >= http.StatusOK {
		r.code = code
	}
}

// Write implements http.ResponseWriter.
func (r *recorded) Write(content []byte) (int, error) {
	if r.long = r.long || r.body.Len()+len(content) > maxAnswer; r.long {
		return len(content), nil
	}
	return r.body.Write(content)
}

func (r *recorded) writeTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), r.header)
	w.WriteHeader(r.code)
	_, _ = w.Write(r.body.Bytes()) // the client is gone
}

// again lets an answer pass that is no conflict.
type again struct {
	http.ResponseWriter

	header    http.Header
	begun     bool
	conflicts bool
}

// Header implements http.ResponseWriter.
func (a *again) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *again) WriteHeader(code int) {
	if a.conflicts = !a.begun && code == http.StatusConflict; a.conflicts {
		return
	}
	if !a.begun {
		maps.Copy(a.ResponseWriter.Header(), a.header)
	}
	a.begun = a.begun || code >= http.StatusOK
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *again) Write(content []byte) (int, error) {
	if a.conflicts {
		return len(content), nil
	}
	if !a.begun {
		a.WriteHeader(http.StatusOK)
	}
	return a.ResponseWriter.Write(content)
}

// Unwrap is for http.ResponseController.
func (a *again) Unwrap() http.ResponseWriter { return a.ResponseWriter }
