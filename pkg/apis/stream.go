package apis

import (
	"context"
	"errors"
	"io"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/internal/stream"
	"github.com/sailplane-dev/sailplane/pkg/internal/tied"
	"github.com/sailplane-dev/sailplane/pkg/internal/upstream"
)

// Stream adds a sub-resource, "log", that a client reads to its end with a GET: what open
// returns, as text/plain, sent on as it comes. kubectl logs reads that of pods, kubectl get
// --raw any. A client may also ask for a WebSocket, as at Kubernetes
// (binary.k8s.io and base64.binary.k8s.io).
//
// The options are the query of the URL: a struct whose JSON fields name the parameters,
// with metav1.TypeMeta embedded and the methods DeepCopyObject and OpenAPIModelName (its name
// in OpenAPI, which TypeMeta alone would give it), such as corev1.PodLogOptions.
// Its fields may be strings, bools, integers, metav1.Time, and pointers to and slices of
// these. It is registered with the resource, unless AddToScheme has done that.
//
// An error of open is the answer, those of k8s.io/apimachinery/pkg/api/errors as they are.
// The context ends with the request: when the client is gone, may no longer read, or the
// plane stops. Then the reader is closed too, while a Read may be waiting, which has to
// return. A request may last as long as it likes; a user may have 256 such streams open.
func Stream[T, O any, PO interface {
	*O
	runtime.Object
}](name string, open func(ctx context.Context, obj *T, options PO) (io.ReadCloser, error)) Option {
	return typed[T]("Stream", func(d *Definition) {
		d.stream(name)
		d.bodies = append(d.bodies, optionsOf(name, PO(new(O))))
		d.addSubresource(name, func(store *registry.Store, _ strategy) rest.Storage {
			return &streamStorage{
				store:   store,
				options: func() runtime.Object { return PO(new(O)) },
				open: func(ctx context.Context, obj, options runtime.Object) (io.ReadCloser, error) {
					return open(ctx, hubType[T](obj), any(options).(PO))
				},
			}
		})
	})
}

// stream declares that requests to a sub-resource may last.
func (d *Definition) stream(name string) { d.longRunning = append(d.longRunning, name) }

// streamStorage serves a sub-resource that is read to its end.
type streamStorage struct {
	store   *registry.Store
	places  stream.Places
	options func() runtime.Object
	open    func(ctx context.Context, obj, options runtime.Object) (io.ReadCloser, error)
}

var (
	_ rest.GetterWithOptions = &streamStorage{}
	_ rest.StorageMetadata   = &streamStorage{}
)

// New implements rest.Storage: in discovery the sub-resource has the kind of the object, as
// pods/log has.
func (s *streamStorage) New() runtime.Object { return s.store.New() }

// Destroy does nothing: the resource destroys what it shares.
func (s *streamStorage) Destroy() {}

// ProducesMIMETypes implements rest.StorageMetadata.
func (s *streamStorage) ProducesMIMETypes(string) []string { return []string{"text/plain"} }

// ProducesObject implements rest.StorageMetadata.
func (s *streamStorage) ProducesObject(string) any { return "" }

// NewGetOptions implements rest.GetterWithOptions.
func (s *streamStorage) NewGetOptions() (options runtime.Object, subpath bool, subpathKey string) {
	return s.options(), false, ""
}

// Get opens the stream of an object, so that an error is an ordinary answer.
func (s *streamStorage) Get(ctx context.Context, name string, options runtime.Object) (runtime.Object, error) {
	if r := tied.Upgrade(ctx); r != nil {
		if err := upstream.Handshake(r); err != nil {
			return nil, err
		}
	}
	obj, err := s.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	who, _ := request.UserFrom(ctx)
	leave, err := s.places.Take(who)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(ctx)
	r, err := s.open(ctx, obj, options)
	if err == nil && r == nil {
		err = errors.New("the function of the stream returned neither a reader nor an error")
	}
	if err != nil {
		end()
		leave()
		return nil, err
	}
	opened := &openedStream{r: r, end: func() { end(); leave() }}
	context.AfterFunc(ctx, func() { _ = opened.Close() })
	return opened, nil
}

// openedStream is the answer to a GET: an object that is nothing but a stream.
type openedStream struct {
	r     io.ReadCloser
	end   func()
	close sync.Once
	err   error
}

var (
	_ runtime.Object        = &openedStream{}
	_ rest.ResourceStreamer = &openedStream{}
)

// GetObjectKind implements runtime.Object.
func (*openedStream) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. Nobody copies an answer.
func (s *openedStream) DeepCopyObject() runtime.Object { return s }

// InputStream implements rest.ResourceStreamer.
func (s *openedStream) InputStream(context.Context, string, string) (r io.ReadCloser, flush bool, mimeType string, err error) {
	return s, true, "text/plain", nil
}

// Read implements io.Reader.
func (s *openedStream) Read(p []byte) (int, error) { return s.r.Read(p) }

// Close implements io.Closer. It closes the reader once.
func (s *openedStream) Close() error {
	s.end()
	s.close.Do(func() { s.err = s.r.Close() })
	return s.err
}
