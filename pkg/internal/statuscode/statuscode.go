// Package statuscode knows what a request was answered with.
package statuscode

import "net/http"

// Writer knows the status code of an answer. It is used through responsewriter.WrapForHTTP1Or2 of
// k8s.io/apiserver, which keeps what else the writer inside can do.
type Writer struct {
	http.ResponseWriter
	// Code is 0 before the answer begins. One that informs, such as 103, begins none.
	Code int
}

// Unwrap implements responsewriter.UserProvidedDecorator.
func (w *Writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(code int) {
	if w.Code == 0 && code >= http.StatusOK {
		w.Code = code
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (int, error) {
	if w.Code == 0 {
		w.Code = http.StatusOK
	}
	return w.ResponseWriter.Write(b)
}
