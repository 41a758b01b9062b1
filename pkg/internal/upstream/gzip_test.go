package upstream_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// answered is an answer as a client sees it.
type answered struct {
	Status   int
	Type     string
	Encoding string
	Vary     string
	Body     string
}

// answerOf is what a handler answers to a GET with a verb and an Accept-Encoding.
func answerOf(t *testing.T, h http.Handler, verb, accept string) answered {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
	if accept != "" {
		r.Header.Set("Accept-Encoding", accept)
	}
	w := httptest.NewRecorder()
	info := &request.RequestInfo{IsResourceRequest: true, Verb: verb}
	h.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
	if got := r.Header.Get("Accept-Encoding"); got != accept {
		t.Errorf("the caller's request has Accept-Encoding %q now", got)
	}
	response := w.Result()
	a := answered{
		response.StatusCode, response.Header.Get("Content-Type"),
		response.Header.Get("Content-Encoding"), response.Header.Get("Vary"), "",
	}
	body := response.Body
	if a.Encoding == "gzip" {
		var err error
		if body, err = gzip.NewReader(body); err != nil {
			t.Fatal(err)
		}
	}
	content, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	a.Body = string(content)
	return a
}

// TestFastGzip holds the answers against those of upstream alone.
func TestFastGzip(t *testing.T) {
	t.Parallel()
	const threshold = 128 << 10
	plain := serializer.NewCodecFactory(clientscheme.Scheme,
		serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	lean := serializerOf(t, upstream.LeanLists(plain), runtime.ContentTypeJSON)
	upstreams := serializerOf(t, plain, runtime.ContentTypeJSON)
	protobuf, _ := runtime.SerializerInfoForMediaType(plain.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	long := &corev1.ConfigMapList{Items: configMaps(400, 1000)}
	short := &corev1.ConfigMapList{Items: configMaps(3, 10)}
	custom := func(n int) *unstructured.UnstructuredList {
		l := &unstructured.UnstructuredList{Object: map[string]any{"kind": "KiteList", "apiVersion": "example.com/v1"}}
		for range n {
			l.Items = append(l.Items, unstructured.Unstructured{Object: map[string]any{
				"kind": "Kite", "apiVersion": "example.com/v1", "spec": strings.Repeat("k", 1000),
			}})
		}
		return l
	}
	cases := map[string]struct {
		reason       string
		encoder      runtime.Encoder
		object       runtime.Object
		verb, accept string
		encoding     string
	}{
		"Long":           {"what is long is compressed", lean, long, "list", "gzip", "gzip"},
		"Short":          {"what is short is not", lean, short, "list", "gzip", ""},
		"Empty":          {"an empty list", lean, &corev1.ConfigMapList{}, "list", "gzip", ""},
		"Choice":         {"gzip is one of those that are accepted", lean, long, "list", "deflate, gzip", "gzip"},
		"Not asked":      {"only who accepts it gets it", lean, long, "list", "", ""},
		"Weighed":        {"weights are not understood", lean, long, "list", "gzip;q=1", ""},
		"Stream":         {"a list in pieces", upstreams, long, "list", "gzip", "gzip"},
		"Short stream":   {"a short list in pieces", upstreams, short, "list", "gzip", ""},
		"Custom":         {"custom resources", upstreams, custom(400), "list", "gzip", "gzip"},
		"Few custom":     {"few of them", upstreams, custom(3), "list", "gzip", ""},
		"Protobuf":       {"protobuf", protobuf.Serializer, long, "list", "gzip", "gzip"},
		"Short protobuf": {"a little of it", protobuf.Serializer, short, "list", "gzip", ""},
		"Object":         {"an object is upstream's", lean, &configMaps(1, 2*threshold)[0], "get", "gzip", "gzip"},
		"Error":          {"errors are short", lean, &metav1.Status{Status: metav1.StatusFailure, Code: 500}, "list", "gzip", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			status := http.StatusOK
			if s, is := c.object.(*metav1.Status); is {
				status = int(s.Code)
			}
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				responsewriters.SerializeObject("some/type", c.encoder, w, r, status, c.object)
			})
			want := answerOf(t, h, c.verb, c.accept)
			fast := upstream.FastGzip(h)
			for range 2 { // the second with the writer of the first
				got := answerOf(t, fast, c.verb, c.accept)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s: -upstream +got:\n%s", c.reason, diff)
				}
				if got.Encoding != c.encoding {
					t.Errorf("%s: Content-Encoding %q: want %q", c.reason, got.Encoding, c.encoding)
				}
			}
		})
	}
}

func TestFastGzipOfPieces(t *testing.T) {
	t.Parallel()
	piece := bytes.Repeat([]byte("kite "), 20<<10)
	cases := map[string]struct {
		reason   string
		serve    http.HandlerFunc
		encoding string
	}{
		"Flush": {"what is flushed arrives, though it may become long", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{"))
			w.(http.Flusher).Flush()
			_, _ = w.Write(piece)
			_, _ = w.Write(piece)
		}, ""},
		"Encoded": {"what is encoded already stays as it is", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "identity")
			_, _ = w.Write(bytes.Repeat(piece, 2))
		}, "identity"},
		"Nothing": {"no body", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "some/type") // or it would be guessed
				c.serve(w, r)
			})
			want := answerOf(t, h, "list", "gzip")
			got := answerOf(t, upstream.FastGzip(h), "list", "gzip")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", c.reason, diff)
			}
			if got.Encoding != c.encoding {
				t.Errorf("%s: Content-Encoding %q: want %q", c.reason, got.Encoding, c.encoding)
			}
		})
	}
}

// TestFastGzipCutOff: a body that ends in a panic must not look complete.
func TestFastGzipCutOff(t *testing.T) {
	t.Parallel()
	h := upstream.FastGzip(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte("kite "), 100<<10))
		panic(http.ErrAbortHandler)
	}))
	r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		info := &request.RequestInfo{IsResourceRequest: true, Verb: "list"}
		h.ServeHTTP(w, r.WithContext(request.WithRequestInfo(r.Context(), info)))
	}()
	z, err := gzip.NewReader(w.Body)
	if err == nil {
		_, err = io.Copy(io.Discard, z)
	}
	if err == nil {
		t.Error("the body looks complete")
	}
}
