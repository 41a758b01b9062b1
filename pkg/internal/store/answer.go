package store

import (
	"context"
	"reflect"
	"sync/atomic"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Form is how a list is written to the client: it decides how much memory that takes.
type Form int

const (
	// Streamed is JSON or protobuf, which hold one object at a time.
	Streamed Form = iota
	// YAML holds one object at a time, custom resources all.
	YAML
	// Rows holds the metadata of all objects: a table, or a list of metadata.
	Rows
	// Indented is JSON that holds custom resources all, and others as Rows: it may be a table.
	Indented
)

// Answer accounts for the memory that the answer to one list holds. It travels in the
// request's context, and serves one list at a time.
type Answer struct {
	// Form is how the list is written.
	Form Form
	// Hold returns when the answer may hold that many bytes in all, or the error to
	// refuse it with. A later call that asks for more does not wait.
	Hold func(ctx context.Context, bytes int64) error

	// Content is set to how many bytes of objects the list has, if they are many.
	Content atomic.Int64
}

type answerKey struct{}

// WithAnswer returns a context whose lists are accounted for.
func WithAnswer(ctx context.Context, a *Answer) context.Context {
	return context.WithValue(ctx, answerKey{}, a)
}

func answerFrom(ctx context.Context) *Answer {
	a, _ := ctx.Value(answerKey{}).(*Answer)
	return a
}

const (
	// smallAnswer is how many bytes an answer may hold without being accounted for.
	smallAnswer = 1 << 20
	// encodings are how often an object is in memory while it is encoded as JSON or
	// protobuf: twice as it is written, in buffers that double when they grow.
	encodings = 6
	// yamlEncodings is the same for YAML, which is made of a tree of the JSON.
	yamlEncodings = 16
	// wholeEncodings is the same for all objects at once.
	wholeEncodings = 8
	// rowBytes is what a row of a table takes besides the metadata of its object.
	rowBytes = 2 << 10
	// rowEncodings is how often that metadata is in memory: a list of metadata is made
	// into protobuf at once.
	rowEncodings = 3
	// decodings are how often an object from the storage is in memory: as it was read,
	// and decoded.
	decodings = 4
	// probed is how many objects are read to learn how large they are.
	probed = 8
)

// sizes knows how large the objects of a resource may be.
type sizes struct{ largest atomic.Int64 }

// see notes the size of a stored object.
func (s *sizes) see(bytes int) {
	for n := int64(bytes); ; {
		most := s.largest.Load()
		if n <= most || s.largest.CompareAndSwap(most, n) {
			return
		}
	}
}

// account holds the memory that a list from the watch cache takes on its way to the
// client. It looks at the objects only when some are so large that it matters.
func (s *sizes) account(ctx context.Context, list runtime.Object) error {
	a := answerFrom(ctx)
	if a == nil {
		return nil
	}
	n, largest := int64(meta.LenList(list)), s.largest.Load()
	most := weight{count: n, content: n * largest, metadata: n * largest, largest: largest, custom: true}
	if most.shallow = n * itemSize(list); most.in(a.Form) <= smallAnswer {
		return nil
	}
	w := weight{count: n, shallow: most.shallow, bound: largest}
	if err := meta.EachListItem(list, w.add); err != nil {
		return err
	}
	if w.content > smallAnswer {
		a.Content.Store(w.content)
	}
	if bytes := w.in(a.Form); bytes > smallAnswer {
		return a.Hold(ctx, bytes)
	}
	return nil
}

// weight is what a list weighs.
type weight struct {
	count, shallow, bound      int64
	content, metadata, largest int64
	custom                     bool
}

// add adds an object.
func (w *weight) add(o runtime.Object) error {
	var all, metadata int64
	switch o := o.(type) {
	case *unstructured.Unstructured:
		w.custom = true
		all, metadata = treeSize(o.Object), treeSize(o.Object["metadata"])
	default:
		metadata = w.bound
		if m, err := meta.Accessor(o); err == nil {
			if sized, ok := m.(interface{ Size() int }); ok {
				metadata = int64(sized.Size())
			} else if of, ok := m.(metav1.ObjectMetaAccessor); ok {
				if sized, ok := of.GetObjectMeta().(interface{ Size() int }); ok {
					metadata = int64(sized.Size())
				}
			}
		}
		all = w.bound
		if sized, ok := o.(interface{ Size() int }); ok {
			all = int64(sized.Size())
			metadata = min(metadata, all)
		}
	}
	w.content += all
	w.metadata += metadata
	w.largest = max(w.largest, all)
	return nil
}

// in is how many bytes the list takes in a form.
func (w *weight) in(f Form) int64 {
	switch {
	case w.custom && (f == YAML || f == Indented):
		return w.shallow + w.content*wholeEncodings
	case f == YAML:
		return w.shallow + w.largest*yamlEncodings
	case f == Streamed:
		return w.shallow + w.largest*encodings
	}
	return w.shallow + w.count*rowBytes + w.metadata*rowEncodings + w.largest*encodings
}

// itemSize is how many bytes each item of a list takes in its slice.
func itemSize(list runtime.Object) int64 {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return 0
	}
	return int64(reflect.TypeOf(items).Elem().Elem().Size()) //nolint:gosec // no size is that large
}

// treeSize is about how many bytes a value of an unstructured object has in JSON.
func treeSize(value any) int64 {
	const scalar = 8
	n := int64(scalar)
	switch v := value.(type) {
	case string:
		n += int64(len(v))
	case map[string]any:
		for key, value := range v {
			n += int64(len(key)) + treeSize(value)
		}
	case []any:
		for _, value := range v {
			n += treeSize(value)
		}
	}
	return n
}

// List implements kubernetes.Interface. A list of a client that may be large waits
// until there is room for what it reads, by the number of objects and the size of the
// first few.
func (l limited) List(ctx context.Context, prefix string, opts kubernetes.ListOptions) (kubernetes.ListResponse, error) {
	a := answerFrom(ctx)
	if a == nil || l.sizes == nil || opts.Limit > 0 && opts.Limit*max(l.sizes.largest.Load(), rowBytes)*decodings <= smallAnswer {
		return l.Interface.List(ctx, prefix, opts)
	}
	first := opts
	if first.Limit == 0 || first.Limit > probed {
		first.Limit = probed
	}
	r, err := l.Interface.List(ctx, prefix, first)
	if err != nil || int64(len(r.Kvs)) >= r.Count || first.Limit == opts.Limit {
		return r, err
	}
	read := int64(0)
	for _, kv := range r.Kvs {
		read += int64(len(kv.Value))
	}
	n := r.Count
	if opts.Limit > 0 {
		n = min(n, opts.Limit)
	}
	factor := int64(decodings)
	if a.Form != Streamed {
		factor += wholeEncodings
	}
	if need := read / int64(len(r.Kvs)) * n * factor; need > smallAnswer {
		if err := a.Hold(ctx, need); err != nil {
			return kubernetes.ListResponse{}, err
		}
	}
	return l.Interface.List(ctx, prefix, opts)
}
