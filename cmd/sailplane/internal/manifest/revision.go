package manifest

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// anchors are resources that the server itself stores, whatever else it serves.
func anchors() []served.Resource {
	var all []served.Resource
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "namespaces"},
		{Group: crdGroup, Version: "v1", Resource: "customresourcedefinitions"},
		{Group: serviceGroup, Version: "v1", Resource: "apiservices"},
	} {
		all = append(all, served.Resource{GroupVersionResource: gvr})
	}
	return all
}

// present returns the revision of the storage, from a list of the first of the
// resources that is served; "" without one.
func (e *Export) present(ctx context.Context, of []served.Resource) (string, error) {
	for _, r := range of {
		list, err := e.Objects.Resource(r.GroupVersionResource).List(ctx, metav1.ListOptions{Limit: 1})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("list %s: %w", r.Name(), err)
		}
		return list.GetResourceVersion(), nil
	}
	return "", nil
}

// settle makes the revision to read the present one, or checks the one asked for.
func (e *Export) settle(current string) error {
	if e.Revision == "" {
		e.Revision = current
		return nil
	}
	wanted, err := strconv.ParseUint(e.Revision, 10, 64)
	if err != nil || wanted == 0 {
		return fmt.Errorf("--revision is %q: want a number above 0, such as the resourceVersion of a list", e.Revision)
	}
	if now, err := strconv.ParseUint(current, 10, 64); err == nil && wanted > now {
		return fmt.Errorf("--revision is %d, and the server is at %d: name one that has been", wanted, now)
	}
	return nil
}

const (
	// firstPage is the limit of the first page, before the size of objects is known.
	firstPage = 25
	// pageBytes is how large pages are at most: in memory they take several times that.
	pageBytes = 16 << 20
)

// scope is which objects of a resource are listed.
type scope struct {
	namespace, fields string
	now               bool // as they are, in place of at the revision
}

// pages calls a function with every object of a resource at the revision, page by
// page; it returns the size of the object. Pages after the first one continue in the
// revision of the first.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#the-resourceversion-parameter
func (e *Export) pages(ctx context.Context, r served.Resource, s scope, each func(*unstructured.Unstructured) (int, error)) error {
	o := metav1.ListOptions{LabelSelector: e.Selector, FieldSelector: s.fields, Limit: min(e.PageSize, firstPage)}
	if !s.now {
		o.ResourceVersion, o.ResourceVersionMatch = e.Revision, metav1.ResourceVersionMatchExact
	}
	for done := 0; ; {
		list, err := e.Objects.Resource(r.GroupVersionResource).Namespace(s.namespace).List(ctx, o)
		if err != nil {
			return e.unread(err)
		}
		size := 0
		for i := range list.Items {
			n, err := each(&list.Items[i])
			if err != nil {
				return err
			}
			size += n
		}
		done += len(list.Items)
		if o.Continue = list.GetContinue(); o.Continue == "" {
			return nil
		}
		o.ResourceVersion, o.ResourceVersionMatch = "", ""
		if size > 0 {
			o.Limit = min(e.PageSize, max(1, int64(len(list.Items))*pageBytes/int64(size)))
		}
		total := int64(done)
		if n := list.GetRemainingItemCount(); n != nil {
			total += *n
		}
		fmt.Fprintf(e.Report, "%s: %d/%d\n", r.Name(), done, total)
	}
}

// countsItself tells whether the versions of a resource are not those of the storage:
// docs/parts/kept.md. Then its present version is none that the storage has about now.
// It is asked for, as a revision that is too high for a resource would be waited for.
func (e *Export) countsItself(ctx context.Context, r served.Resource) (bool, error) {
	var now [3]uint64
	for i, of := range [][]served.Resource{anchors(), {r}, anchors()} {
		s, err := e.present(ctx, of)
		if err != nil {
			return false, err
		}
		if now[i], err = strconv.ParseUint(s, 10, 64); err != nil {
			return false, nil //nolint:nilerr // without a number, nothing can be told
		}
	}
	return now[1] < now[0] || now[1] > now[2], nil
}

// errCompacted says that the storage has the revision no more.
var errCompacted = errors.New("the revision is not stored any more")

// unread explains why a list failed.
func (e *Export) unread(err error) error {
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return fmt.Errorf("revision %s: %w: run the export again, for a later revision, "+
			"or raise storage.history of the server (--storage-history), for which past revisions are kept", e.Revision, errCompacted)
	case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		return fmt.Errorf("it is no longer served: run the export again, which then leaves it out: %w", err)
	}
	return fmt.Errorf("list: %w", err)
}
