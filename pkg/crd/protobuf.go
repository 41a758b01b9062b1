package crd

import (
	"mime"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// withoutProtobuf answers 415 to a custom resource sent as protobuf. Upstream
// lists protobuf for the answers to such requests, and dereferences nil when
// one is to be decoded strictly.
// https://github.com/kubernetes/apiextensions-apiserver/blob/v0.37.2/pkg/apiserver/customresource_handler.go#L928
func (g *groups) withoutProtobuf(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || r.Method == http.MethodGet || r.Method == http.MethodDelete {
			next.ServeHTTP(w, r)
			return
		}
		mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
		if err != nil || mediaType != runtime.ContentTypeProtobuf || !g.serves(info) {
			next.ServeHTTP(w, r)
			return
		}
		refusal := negotiation.NewUnsupportedMediaTypeError([]string{runtime.ContentTypeJSON, runtime.ContentTypeYAML})
		responsewriters.ErrorNegotiated(refusal, scheme.Codecs, schema.GroupVersion{Version: "v1"}, w, r)
	})
}

// serves tells whether the request is for a resource of a CRD.
func (g *groups) serves(info *request.RequestInfo) bool {
	if g.lister == nil {
		return false
	}
	_, err := g.lister.Get(info.Resource + "." + info.APIGroup)
	return err == nil
}
