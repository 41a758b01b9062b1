package upstream

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
)

// BadInput makes a client's mistakes a 4xx where upstream's handlers answer
// 500, or panic, because an error on the way is not a Status:
//   - resource versions that are no numbers
//     https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/api_object_versioner.go
//   - strategic merge patches and applied objects of the wrong shape
//     https://github.com/kubernetes/apimachinery/blob/v0.37.2/pkg/util/strategicpatch/patch.go
//   - JSON patches that replace the whole by nothing
//     https://github.com/evanphx/json-patch/blob/v4.13.0/patch.go#L573
//   - a list as the form of an answer that is none, which is found out after the write
//     https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/endpoints/handlers/response.go
//   - the scale of a custom resource without replicas
//     https://github.com/kubernetes/apiextensions-apiserver/blob/v0.37.2/pkg/registry/customresource/etcd.go
//
// Storage and admission say by a reason that an error is theirs. One without a reason, in a
// write of a resource that the plane stores, is of what the client sent.
//
// Of what streams, only the request is looked at.
func BadInput(
	next http.Handler, stored func(schema.GroupResource) bool, streams request.LongRunningRequestCheck,
) http.Handler {
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
		if r.Method == http.MethodGet && info.Subresource != scale || streams(r, info) {
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
		if why := served(next, responsewriter.WrapForHTTP1Or2(held), r); why != "" {
			klog.FromContext(r.Context()).Error(nil, "What a client sent was refused because upstream's code panics on it", "panic", why)
			refuse(w, r, apierrors.NewBadRequest("the server cannot work with what was sent, correct the patch or the object: "+why))
			return
		}
		held.release(r, func() bool {
			return stored(schema.GroupResource{Group: info.APIGroup, Resource: info.Resource})
		})
	})
}

// fragile says whether a function is of a package of upstream that panics on some of what
// clients send: patches whose lists have values of the wrong type, operations without a
// value, and definitions without a schema. These packages work on the request alone, and
// before anything is stored.
func fragile(function string) bool {
	return slices.ContainsFunc([]string{
		"k8s.io/apimachinery/pkg/util/strategicpatch.",
		"gopkg.in/evanphx/json-patch%2ev4.",
		"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation.",
		"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/",
	}, func(p string) bool { return strings.HasPrefix(function, p) })
}

// served has the API answer. If one of the fragile packages panics, it says why and
// where; nothing was written then. Any other panic goes on.
func served(next http.Handler, w http.ResponseWriter, r *http.Request) (why string) {
	defer func() {
		if panicked := recover(); panicked != nil {
			// What is written is made in a goroutine, whose panic has its stack.
			text, _ := panicked.(string)
			if why = fragilePanic(text); why == "" {
				panic(panicked) //nolint:forbidigo // somebody else's, which the server recovers
			}
		}
	}()
	next.ServeHTTP(w, r)
	return ""
}

// fragilePanic is the message of a panic and the function that panicked, if it is one of
// the fragile packages.
func fragilePanic(text string) string {
	message, stack, _ := strings.Cut(text, "\n")
	_, stack, _ = strings.Cut(stack, "\npanic(")
	for line := range strings.SplitSeq(stack, "\n") {
		if !strings.HasPrefix(line, "k8s.io/") && !strings.HasPrefix(line, "gopkg.in/") {
			if strings.HasPrefix(line, "github.com/") {
				return ""
			}
			continue
		}
		if fragile(line) {
			function := line[:max(strings.LastIndexByte(line, '('), 0)] // without its arguments
			return message + " in " + function[strings.LastIndexByte(function, '/')+1:]
		}
		return ""
	}
	return ""
}

// scale is the sub-resource.
const scale = "scale"

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
	return listOfOne(info, r)
}

// listOfOne takes the list of metadata from the forms that a client accepts of what is no list.
func listOfOne(info *request.RequestInfo, r *http.Request) error {
	const list = "PartialObjectMetadataList"
	if info.Verb == "list" || info.Verb == "deletecollection" || !strings.Contains(r.Header.Get("Accept"), list) {
		return nil
	}
	isList := func(parameter string) bool { // there may be spaces
		key, value, _ := strings.Cut(parameter, "=")
		return strings.TrimSpace(key) == "as" && strings.TrimSpace(value) == list
	}
	var others []string
	for form := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		if !slices.ContainsFunc(strings.Split(form, ";"), isList) {
			others = append(others, form)
		}
	}
	if len(others) == 0 {
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
			Message: "the answer is no list: accept PartialObjectMetadata instead of PartialObjectMetadataList",
		}}
	}
	r.Header.Set("Accept", strings.Join(others, ","))
	return nil
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	responsewriters.ErrorNegotiated(err, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
}

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

// noReplicas is how the error of a scale begins when the object has no replicas.
const noReplicas = "the spec replicas field "

// release sends a held error, as 4xx when the client caused it.
func (h *heldError) release(r *http.Request, own func() bool) {
	if !h.held {
		return
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(h.plain(), nil, nil)
	if status, ok := obj.(*metav1.Status); err == nil && ok && r.Context().Err() == nil {
		if mistake := mistakeOf(status, own); mistake != nil {
			h.Header().Del("Content-Length")
			h.Header().Del("Content-Encoding")
			mistake.ErrStatus.Message = cut(mistake.ErrStatus.Message, maxMistake)
			refuse(h.ResponseWriter, r, mistake)
			return
		}
	}
	h.ResponseWriter.WriteHeader(http.StatusInternalServerError)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client is gone when it fails
}

// maxMistake is how long the message of a mistake may be, in bytes. Some of upstream's have
// a line for each value that is wrong.
const maxMistake = 16 << 10

// plain is the body of a held error, which upstream compresses when it is long.
func (h *heldError) plain() []byte {
	if h.Header().Get("Content-Encoding") != "gzip" {
		return h.body.Bytes()
	}
	r, err := gzip.NewReader(bytes.NewReader(h.body.Bytes()))
	if err != nil {
		return nil
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return nil
	}
	return b
}

// mistakeOf is the error of the client that a 500 stands for; nil if there is none.
func mistakeOf(status *metav1.Status, own func() bool) *apierrors.StatusError {
	switch status.Reason {
	case metav1.StatusReasonUnknown:
		// Conversions keep no type of what failed below them.
		if !strings.Contains(status.Message, "conversion webhook for ") && own() {
			return apierrors.NewBadRequest(status.Message)
		}
	case metav1.StatusReasonInternalError:
		_, message, _ := strings.Cut(status.Message, ": ")
		if strings.HasPrefix(message, noReplicas) && own() {
			mistake := apierrors.NewNotFound(schema.GroupResource{}, "")
			mistake.ErrStatus.Details, mistake.ErrStatus.Message = nil, message+": the object has no scale until it is set"
			return mistake
		}
	default:
	}
	return nil
}
