package upstream

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// FastGzip compresses long lists with less CPU time than upstream, and to the same
// length: a list of 10,000 as protobuf takes 0.034 CPU s in place of 0.038, as JSON 0.065
// in place of 0.070 (bench -only list). Which lists are compressed, and how clients see it, stays the same.
// Requests for other servers must not come here: those decide themselves whether to
// compress.
//
// The metric apiserver_response_sizes counts the uncompressed size of these lists.
// https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/endpoints/handlers/responsewriters/writers.go#L149
func FastGzip(next http.Handler) http.Handler {
	writers := &sync.Pool{} // of *gzip.Writer
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := request.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || info.Verb != "list" || !acceptsGzip(r.Header) {
			next.ServeHTTP(w, r)
			return
		}
		plain := *r
		plain.Header = r.Header.Clone()
		plain.Header.Del(acceptEncoding)
		z := &gzipWriter{ResponseWriter: w, writers: writers, status: http.StatusOK}
		next.ServeHTTP(responsewriter.WrapForHTTP1Or2(z), &plain)
		z.finish() // not after a panic: what is cut off must not look complete
	})
}

const acceptEncoding = "Accept-Encoding"

// acceptsGzip reads the header as upstream does.
func acceptsGzip(h http.Header) bool {
	return slices.ContainsFunc(strings.Split(h.Get(acceptEncoding), ","), func(encoding string) bool {
		return strings.TrimSpace(encoding) == "gzip"
	})
}

const (
	// gzipThreshold is the shortest body that is compressed, in bytes.
	gzipThreshold = listChunk
	// streamStart is the longest first write of a list that is written in pieces:
	// "{" in JSON, four bytes of magic in protobuf. The first write of any other
	// body is all of it, or as much as the threshold.
	streamStart = 4
	// gzipLevel is the first that compresses as well as upstream's. Level 1 takes
	// half of upstream's time, and leaves up to a tenth more.
	gzipLevel = 2
)

// gzipWriter decides whether to compress when it knows how long the body is.
type gzipWriter struct {
	http.ResponseWriter
	writers *sync.Pool
	status  int
	// held is the beginning of a body, until the decision.
	held []byte
	// body is where the rest is written, after the decision.
	body io.Writer
}

// Unwrap implements http.ResponseController's way to the connection.
func (z *gzipWriter) Unwrap() http.ResponseWriter { return z.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (z *gzipWriter) WriteHeader(status int) { z.status = status }

// Write implements http.ResponseWriter.
func (z *gzipWriter) Write(p []byte) (int, error) {
	if z.body == nil && len(z.held)+len(p) <= gzipThreshold && (z.held != nil || len(p) <= streamStart) {
		z.held = append(z.held, p...)
		return len(p), nil
	}
	if z.body == nil {
		if err := z.begin(len(z.held) + len(p)); err != nil {
			return 0, err
		}
	}
	return z.body.Write(p)
}

// Flush implements http.Flusher. A caller that flushes wants the bytes sent.
func (z *gzipWriter) Flush() {
	if z.body == nil {
		_ = z.begin(0) // the client is gone when it fails
	}
	if f, ok := z.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}

// begin writes the header for a body of at least length bytes, and the held bytes.
func (z *gzipWriter) begin(length int) error {
	z.body = z.ResponseWriter
	if length > gzipThreshold && z.Header().Get("Content-Encoding") == "" {
		w, ok := z.writers.Get().(*gzip.Writer)
		if !ok {
			var err error
			if w, err = gzip.NewWriterLevel(nil, gzipLevel); err != nil {
				return err
			}
		}
		w.Reset(z.ResponseWriter)
		z.body = w
		z.Header().Set("Content-Encoding", "gzip")
		z.Header().Add("Vary", acceptEncoding)
	}
	z.ResponseWriter.WriteHeader(z.status)
	_, err := z.body.Write(z.held)
	z.held = nil
	return err
}

// finish writes the rest of a complete answer.
func (z *gzipWriter) finish() {
	if z.body == nil {
		_ = z.begin(len(z.held)) // the client is gone when it fails, here and below
	}
	if w, ok := z.body.(*gzip.Writer); ok {
		_ = w.Close()
		w.Reset(nil)
		z.writers.Put(w)
	}
}
