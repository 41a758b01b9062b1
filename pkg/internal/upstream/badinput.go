package upstream

import (
	"bytes"
	"net/http"
	"regexp"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/client-go/kubernetes/scheme"
)

// BadInput makes a client's mistakes a 4xx where upstream's handlers answer
// 500, or panic, because an error on the way is not a Status:
//   - resource versions that are no numbers
//     https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/api_object_versioner.go
//   - strategic merge patches and applied objects of the wrong shape
//     https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/util/strategicpatch/patch.go
//   - JSON patches that replace the whole by nothing
//     https://github.com/evanphx/json-patch/blob/v4.13.0/patch.go#L573
func BadInput(next http.Handler) http.Handler {
	mistakes := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(clientMistakes) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest {
			next.ServeHTTP(w, r)
			return
		}
		if err := badRequest(info, r); err != nil {
			refuse(w, r, err)
			return
		}
		if r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodPatch && isJSONPatch(r) {
			if err := checkJSONPatch(r); err != nil {
				refuse(w, r, err)
				return
			}
		}
		held := &heldError{ResponseWriter: w}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(held), r)
		held.release(r, mistakes)
	})
}

// badRequest finds mistakes in the URL.
func badRequest(info *request.RequestInfo, r *http.Request) error {
	if info.Namespace != "" && len(content.IsPathSegmentName(info.Resource)) == 0 {
		if msgs := content.IsPathSegmentName(info.Namespace); len(msgs) > 0 {
			return apierrors.NewBadRequest("namespace " + strconv.Quote(info.Namespace) + ": " + msgs[0])
		}
	}
	if version := r.URL.Query().Get("resourceVersion"); version != "" && r.Method == http.MethodGet {
		if _, err := strconv.ParseUint(version, 10, 64); err != nil {
			return apierrors.NewBadRequest("resourceVersion: Invalid value: " + strconv.Quote(version) +
				": want the resourceVersion of a list or an object")
		}
	}
	return nil
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

// clientMistakes are the messages of errors that only a client's input causes.
// They are all that is left of the errors: no type, no sentinel.
const clientMistakes = `^(` +
	`strconv\.ParseUint: parsing ` +
	`|resourceVersion: Invalid value: ` +
	`|resourceVersion should not be set on objects to be created$` +
	`|failed to create typed patch object ` +
	`|invalid key: ` +
	`|unknown patch type: ` +
	`|expected a .*, but received a ` +
	`|map: .* does not contain declared merge key: ` +
	`|list element types are not identical: ` +
	`|invalid value for special key: ` +
	`|[Tt]he order in patch list:` +
	`|merging lists cannot yet be specified in the patch$` +
	`|value for key .* is not a map$` +
	`|no elements in any of the given slices$` +
	`|unknown type: ` +
	`|invalid element type in merging list:` +
	`|cannot find merge key ` +
	`|lists of lists are not supported$` +
	`|invalid patch format of ` +
	`|patch content doesn't match retainKeys list$` +
	`|strategic merge patch format is not supported$` +
	`|delete patch type with no merge key defined$` +
	`)`

// heldError holds a 500 back until it is known whether the client caused it;
// everything else passes through.
type heldError struct {
	http.ResponseWriter
	wrote bool
	held  bool
	body  bytes.Buffer
}

// Unwrap implements http.ResponseController's way to the connection.
func (h *heldError) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (h *heldError) WriteHeader(status int) {
	if h.wrote {
		return
	}
	h.wrote = true
	if status == http.StatusInternalServerError {
		h.held = true
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

// Flush implements http.Flusher. It keeps a held error: the connection would send a
// 200 for it.
func (h *heldError) Flush() {
	h.WriteHeader(http.StatusOK)
	if !h.held {
		_ = http.NewResponseController(h.ResponseWriter).Flush() // some have nothing to flush
	}
}

// Write implements http.ResponseWriter.
func (h *heldError) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.held {
		return h.body.Write(p)
	}
	return h.ResponseWriter.Write(p)
}

// release sends a held error, as 400 when the client caused it.
func (h *heldError) release(r *http.Request, mistakes func() *regexp.Regexp) {
	if !h.held {
		return
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(h.body.Bytes(), nil, nil)
	if status, ok := obj.(*metav1.Status); err == nil && ok && status.Reason == metav1.StatusReasonUnknown &&
		mistakes().MatchString(status.Message) {
		h.Header().Del("Content-Length")
		refuse(h.ResponseWriter, r, apierrors.NewBadRequest(status.Message))
		return
	}
	h.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client is gone when it fails
}
