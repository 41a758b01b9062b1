package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// rewriter updates objects with their own content.
type rewriter struct {
	objects  dynamic.Interface
	dryRun   bool
	pageSize int64
	workers  int
	out      io.Writer
	progress *progress
	failures failures
}

// resource writes all objects of a resource, a page at a time.
func (w *rewriter) resource(ctx context.Context, t served.Resource) (tally, error) {
	begun := time.Now()
	done, next := w.progress.position(t.Name())
	already := done.total()
	for {
		list, err := w.page(ctx, t, next)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
			return done, fmt.Errorf("it is no longer served: run the command again, which then leaves it out: %w", err)
		case err != nil:
			return done, fmt.Errorf("list: %w", err)
		}
		done.plus(w.write(ctx, t, list.Items))
		if ctx.Err() != nil {
			return done, context.Cause(ctx) // the page is unfinished
		}
		total := int64(done.total())
		if n := list.GetRemainingItemCount(); n != nil {
			total += *n
		}
		next = list.GetContinue()
		if next == "" && done.Failed == 0 {
			w.progress.finish(t.Name(), done)
		} else {
			w.progress.at(t.Name(), next, done)
		}
		if err := w.progress.save(); err != nil {
			return done, err
		}
		if next == "" {
			break
		}
		fmt.Fprintf(w.out, "%s: %d/%d, %.0f/s\n", t.Name(), done.total(), total, float64(done.total()-already)/time.Since(begun).Seconds())
	}
	fmt.Fprintf(w.out, "%s: %s, %.0f/s\n", t.Name(), done.String(w.dryRun), float64(done.total()-already)/time.Since(begun).Seconds())
	return done, nil
}

// page reads a page. The server answers an expired position with another that continues after the same
// object, in the current state.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks
func (w *rewriter) page(ctx context.Context, t served.Resource, next string) (*unstructured.UnstructuredList, error) {
	options := metav1.ListOptions{Limit: w.pageSize, Continue: next}
	list, err := w.objects.Resource(t.GroupVersionResource).List(ctx, options)
	var status apierrors.APIStatus
	if next == "" || !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return list, err
	}
	options.Continue = status.Status().Continue // none: from the start
	return w.objects.Resource(t.GroupVersionResource).List(ctx, options)
}

// write writes objects, several at the same time.
func (w *rewriter) write(ctx context.Context, t served.Resource, items []unstructured.Unstructured) tally {
	var mu sync.Mutex
	var sum tally
	workqueue.ParallelizeUntil(ctx, w.workers, len(items), func(i int) {
		one := w.object(ctx, t, &items[i])
		mu.Lock()
		defer mu.Unlock()
		sum.plus(one)
	})
	return sum
}

// object updates an object with its own content. The update has the resource
// version that was read, so it never overwrites a later write.
func (w *rewriter) object(ctx context.Context, t served.Resource, u *unstructured.Unstructured) tally {
	options := metav1.UpdateOptions{}
	if w.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	got, err := w.objects.Resource(t.GroupVersionResource).Namespace(u.GetNamespace()).Update(ctx, u, options)
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse):
		return tally{Skipped: 1} // a missing resource has that cause, a missing object does not
	case err != nil:
		if ctx.Err() == nil {
			w.failures.add(fmt.Sprintf("%s %s: %v", t.Name(), cache.MetaObjectToName(u), err))
		}
		return tally{Failed: 1}
	case got.GetResourceVersion() == u.GetResourceVersion():
		return tally{Unchanged: 1}
	}
	return tally{Rewritten: 1}
}

// failures are the errors of objects. All are counted; the first ones are
// reported.
type failures struct {
	mu    sync.Mutex
	first []string
	n     int
}

const toldFailures = 20

func (f *failures) add(messages ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range messages {
		if f.n++; len(f.first) < toldFailures {
			f.first = append(f.first, m)
		}
	}
}

// err reports them, if there are any.
func (f *failures) err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.n == 0 {
		return nil
	}
	lines := slices.Sorted(slices.Values(f.first))
	if more := f.n - len(f.first); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%d failures:\n  %s", f.n, strings.Join(lines, "\n  "))
}
