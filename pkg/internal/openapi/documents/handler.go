package documents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/NYTimes/gziphandler"
	"github.com/munnerz/goautoneg"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"

	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

const (
	pathV2 = "/openapi/v2"
	pathV3 = "/openapi/v3"
)

// Install puts the service's two paths on a mux.
func (s *Service) Install(mux common.PathHandlerByGroupVersion) {
	mux.Handle(pathV2, gziphandler.GzipHandler(readOnly(s.serveV2)))
	mux.Handle(pathV3, readOnly(s.serveIndex))
	mux.HandlePrefix(pathV3+"/", readOnly(s.serveV3))
}

func readOnly(next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "openapi: the method is not allowed: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		next(w, r)
	})
}

// format is one encoding of a document.
type format struct {
	subType     string // requested: application/<subType>
	contentType string // of the answer
	protobuf    bool
}

// formats lists the encodings for a spec version, "v2" or "v3". The name with the @
// is not a valid media type; its successor is the content type of the answer.
func formats(version string) []format {
	current := "com.github.proto-openapi.spec." + version + ".v1.0+protobuf"
	deprecated := "com.github.proto-openapi.spec." + version + "@v1.0+protobuf"
	return []format{
		{subType: "json", contentType: "application/json"},
		{subType: current, contentType: "application/" + current, protobuf: true},
		{subType: deprecated, contentType: "application/" + current, protobuf: true},
	}
}

// negotiate picks the first encoding an Accept header names.
func negotiate(accept string, offered []format) (format, bool) {
	if accept == "" {
		accept = "*/*"
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		for _, f := range offered {
			if (clause.Type == "application" || clause.Type == "*") && (clause.SubType == f.subType || clause.SubType == "*") {
				return f, true
			}
		}
	}
	return format{}, false
}

// serveIndex answers with the list of documents. It builds none of them.
func (s *Service) serveIndex(w http.ResponseWriter, r *http.Request) {
	documents, err := s.documents(r.Context())
	if err != nil {
		// An incomplete index is better than none.
		klog.FromContext(r.Context()).Error(err, "OpenAPI index is incomplete")
	}
	index := handler3.OpenAPIV3Discovery{Paths: make(map[string]handler3.OpenAPIV3DiscoveryGroupVersion, len(documents))}
	for path, d := range documents {
		u := url.URL{Path: pathV3 + "/" + path, RawQuery: url.Values{"hash": {d.tag}}.Encode()}
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: u.String()}
	}
	data, err := json.Marshal(index)
	if err != nil {
		http.Error(w, fmt.Sprintf("openapi: encode index: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Etag", strconv.Quote(openapi.Digest(string(data))))
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// serveV3 answers one v3 document.
func (s *Service) serveV3(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, pathV3+"/")
	documents, err := s.documents(r.Context())
	d, ok := documents[path]
	switch {
	case !ok && err != nil:
		http.Error(w, fmt.Sprintf("openapi: find document %q: %v", path, err), http.StatusServiceUnavailable)
		return
	case !ok:
		http.Error(w, fmt.Sprintf("openapi: there is no document %q: GET %s lists the documents", path, pathV3), http.StatusNotFound)
		return
	}
	w.Header().Add("Vary", "Accept")
	f, ok := negotiate(r.Header.Get("Accept"), formats("v3"))
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	hash := r.URL.Query().Get("hash")
	if hash != "" && hash != d.tag {
		// Relative, so that it is right below any prefix that a proxy or a parent server
		// has cut off; not to be stored, because the tag may come back (a CRD created and
		// deleted) and the two would redirect in a circle.
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("Location", "?"+url.Values{"hash": {d.tag}}.Encode())
		w.WriteHeader(http.StatusMovedPermanently)
		return
	}
	s.serve(w, r, d, f, hash != "")
}

// serveV2 answers the v2 document.
func (s *Service) serveV2(w http.ResponseWriter, r *http.Request) {
	w.Header().Add("Vary", "Accept")
	f, ok := negotiate(r.Header.Get("Accept"), formats("v2"))
	if !ok {
		w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	d, err := s.v2(r.Context())
	if err != nil {
		http.Error(w, fmt.Sprintf("openapi: build v2: %v", err), http.StatusServiceUnavailable)
		return
	}
	s.serve(w, r, d, f, false)
}

// serve answers with a document. A client that has it already gets 304, and nothing
// is built. An immutable answer is one whose URL has the tag in it.
func (s *Service) serve(w http.ResponseWriter, r *http.Request, d document, f format, immutable bool) {
	etag := strconv.Quote(d.tag)
	known := matches(r.Header.Get("If-None-Match"), etag)
	var data []byte
	if !known {
		var err error
		if data, err = s.bytes(r.Context(), d, f.protobuf); err != nil {
			http.Error(w, fmt.Sprintf("openapi: build document %q: %v", strings.TrimPrefix(d.path, "/"), err), d.failed)
			return
		}
	}
	w.Header().Set("Etag", etag)
	if immutable {
		w.Header().Set("Cache-Control", "public, immutable")
		// A year is the longest that RFC 2616, section 14.21, allows.
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	if known {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Type", f.contentType)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// matches reports whether an If-None-Match header names the tag.
func matches(header, etag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == etag {
			return true
		}
	}
	return false
}
