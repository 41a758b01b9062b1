package kept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/sailplane-dev/sailplane/pkg/keep"
)

// get reads an object.
func (s *Store[T, PT]) get(ctx context.Context, key keep.Key) (keep.Item[T], error) {
	prompt, ok := s.keeper.(keep.Prompt)
	atOnce := ok && prompt.GetsAtOnce()
	item, err := call(ctx, &s.Config, s.slots, atOnce, func(ctx context.Context) (keep.Item[T], error) { return s.keeper.Get(ctx, key) })
	if err == nil || errors.Is(err, keep.ErrNotFound) {
		s.broken.is(ctx, key, item.Broken)
	}
	return item, err
}

// wholeLists may take so many times as long as other calls.
const wholeLists = 6

// list reads a page.
func (s *Store[T, PT]) list(ctx context.Context, r keep.Range) (keep.Page[T], error) {
	c := s.Config
	if r.Limit == 0 {
		c.Timeout *= wholeLists
	}
	page, err := call(ctx, &c, s.slots, false, func(ctx context.Context) (keep.Page[T], error) { return s.keeper.List(ctx, r) })
	if err == nil && page.Version <= 0 {
		err = s.wrong("it listed at version %d", page.Version)
	}
	if err == nil && page.More && len(page.Items) == 0 {
		err = s.wrong("it listed nothing, and says that there is more")
	}
	if err == nil {
		noteBroken[T, PT](ctx, s.broken, r, page)
	}
	return page, err
}

// Get implements storage.Interface.
func (s *Store[T, PT]) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	in, key, err := s.scope(key, false)
	if err != nil {
		return err
	}
	minimum, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	item, err := keep.Item[T]{}, keep.ErrNotFound
	if !in.nothing {
		item, err = s.get(ctx, keep.Key{Namespace: in.namespace, Name: in.name})
	}
	if err != nil && !errors.Is(err, keep.ErrNotFound) {
		return err
	}
	if minimum > 0 && (err != nil || uint64(item.Version) < minimum) { //nolint:gosec // versions are positive
		current, err := s.GetCurrentResourceVersion(ctx)
		if err != nil {
			return err
		}
		if minimum > current {
			return storage.NewTooLargeResourceVersionError(minimum, current, 0)
		}
	}
	if err != nil {
		if opts.IgnoreNotFound {
			return runtime.SetZeroValue(out)
		}
		return storage.NewKeyNotFoundError(key, 0)
	}
	o, err := s.object(item)
	if err != nil {
		return err
	}
	if info, ok := request.RequestInfoFrom(ctx); item.Broken != nil && (!ok || info.Verb != "delete") {
		return s.broken.answer(keep.Key{Namespace: in.namespace, Name: in.name}, item.Broken)
	}
	return s.set(out, o)
}

// GetList implements storage.Interface.
func (s *Store[T, PT]) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	in, prefix, err := s.scope(key, opts.Recursive)
	if err != nil {
		return err
	}
	at, start, err := storage.ValidateListOptions(prefix, s.Versioner(), opts)
	if err != nil {
		return err
	}
	minimum, err := s.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: %v", err))
	}
	l := &listing[T, PT]{store: s, in: in, prefix: prefix, opts: opts, start: start, at: at, minimum: minimum}
	switch {
	case in.name != "" || in.nothing:
		err = l.one(ctx)
	default:
		err = l.pages(ctx)
	}
	if err != nil {
		return err
	}
	return l.finish(list)
}

// listing is a list on its way.
type listing[T any, PT Object[T]] struct {
	store   *Store[T, PT]
	in      scope
	prefix  string // of the keys
	opts    storage.ListOptions
	start   string // the first key; empty: any
	at      int64  // the version of the answer; 0: the newest
	minimum uint64

	found   []PT
	version int64
	last    keep.Key
	more    bool
}

// maxPage is how many objects are asked for at most by one call of a list with a limit.
const maxPage = 10000

// pages reads until the limit is full, or nothing is left. What is read in several calls must
// be of one version: if it is not, all is read again by one.
func (l *listing[T, PT]) pages(ctx context.Context) error {
	r := keep.Range{Namespace: l.in.namespace}
	skip := "" // keys before this one are left out
	if rest := strings.TrimPrefix(l.start, l.store.Prefix); l.start != "" {
		if after, ok := strings.CutSuffix(rest, "\x00"); ok {
			r.After = l.store.keyOf(after)
		} else {
			skip = rest
		}
	}
	begin := r
	r.Limit = int(min(l.opts.Predicate.Limit, maxPage))
	for {
		page, err := l.store.list(ctx, r)
		if err != nil {
			return err
		}
		switch {
		case l.version == 0:
			if err := l.check(page.Version); err != nil {
				return err
			}
			l.version = page.Version
		case l.version != page.Version:
			l.found, l.version, l.more, r = nil, 0, false, begin
			continue
		}
		if err := l.take(page, skip); err != nil || l.more || !page.More {
			return err
		}
		r.After = l.last
		r.Limit = min(2*r.Limit, maxPage)
	}
}

// take adds what matches of a page, up to the limit.
func (l *listing[T, PT]) take(page keep.Page[T], skip string) error {
	for i, item := range page.Items {
		o, err := l.store.object(item)
		if err != nil {
			return err
		}
		l.last = keep.Key{Namespace: o.GetNamespace(), Name: o.GetName()}
		if l.last.String() < skip || item.Broken != nil {
			continue
		}
		if match, err := l.opts.Predicate.Matches(o); err == nil && match {
			l.found = append(l.found, o)
		}
		if limit := l.opts.Predicate.Limit; limit > 0 && int64(len(l.found)) == limit {
			l.more = page.More || i < len(page.Items)-1
			return nil
		}
	}
	return nil
}

// one reads an object.
func (l *listing[T, PT]) one(ctx context.Context) error {
	current, err := l.store.GetCurrentResourceVersion(ctx)
	if err != nil {
		return err
	}
	l.version = int64(current) //nolint:gosec // it was one
	if err := l.check(l.version); err != nil || l.in.nothing {
		return err
	}
	item, err := l.store.get(ctx, keep.Key{Namespace: l.in.namespace, Name: l.in.name})
	if err != nil {
		if errors.Is(err, keep.ErrNotFound) {
			err = nil
		}
		return err
	}
	// It may have been written since.
	l.version = max(l.version, item.Version)
	return l.take(keep.Page[T]{Items: []keep.Item[T]{item}}, "")
}

// check returns an error if the newest version cannot be the answer. Its texts are those of
// upstream where a version of etcd was compacted, which clients may look for
// (https://github.com/kubernetes/apiserver/blob/v0.37.2/pkg/storage/etcd3/errors.go).
func (l *listing[T, PT]) check(newest int64) error {
	want, is := max(uint64(l.at), l.minimum), uint64(newest) //nolint:gosec // versions are positive
	if want > is {
		return storage.NewTooLargeResourceVersionError(want, is, 0)
	}
	if l.at == 0 || l.at == newest {
		return nil
	}
	if l.start == "" {
		return apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"List again without it, or go on with the token of this answer: then what changed meanwhile may be missing.")
	token, encodeErr := storage.EncodeContinue(l.start, l.prefix, -1)
	if encodeErr == nil {
		err.ErrStatus.ListMeta.Continue = token
	}
	return err
}

// finish fills in the list.
func (l *listing[T, PT]) finish(list runtime.Object) error {
	// Everything that the list is made of is a struct, not a pointer.
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	to, ok := items.(*[]T)
	if !ok {
		return fmt.Errorf("%s are of type %T: cannot list them in a %T", l.store.Resource, *new(T), list)
	}
	*to = slices.Grow((*to)[:0], len(l.found))
	if *to == nil {
		*to = []T{}
	}
	for _, o := range l.found {
		*to = append(*to, *o)
	}
	token := ""
	if l.more {
		if token, err = storage.EncodeContinue(l.store.Prefix+l.last.String()+"\x00", l.prefix, l.version); err != nil {
			return err
		}
	}
	return l.store.Versioner().UpdateList(list, uint64(l.version), token, nil) //nolint:gosec // versions are positive
}
