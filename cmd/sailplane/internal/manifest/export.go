package manifest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// Export reads objects of a server, all at one revision.
type Export struct {
	Objects   dynamic.Interface
	Discovery discovery.DiscoveryInterface
	// Resources are patterns as in an encryption configuration. None: everything
	// but what passes, such as events and Leases, which a pattern has to name.
	Resources []string
	// Namespaces are those to read, with their Namespace objects and without what
	// is in no namespace. None: everything.
	Namespaces []string
	// Selector is one of labels.
	Selector string
	// Revision is the one to read. Empty: the present one.
	Revision string
	// PageSize is how many objects are read at once, fewer if they are large.
	PageSize int64
	Form     Form
	// Report is where progress and the summary go.
	Report io.Writer
}

// Sink takes the objects of an export.
type Sink interface {
	// Add takes an object, which is the text.
	Add(r served.Resource, u *unstructured.Unstructured, text []byte) error
	// Commit is called after the last one.
	Commit() error
	// Abort is called in place of Commit, after an error, and may be called after it.
	Abort()
}

// exported is what an export found and did.
type exported struct {
	found served.Found
	to    Sink

	objects, selfMade, owned, deleting int
}

// Run reads the objects and gives them to the sink.
func (e *Export) Run(ctx context.Context, to Sink) error {
	defer to.Abort()
	all, found, err := e.resources(ctx)
	if err != nil {
		return err
	}
	x := &exported{found: found, to: to}
	for _, r := range all {
		if err := e.resource(ctx, r, x); err != nil {
			if ctx.Err() != nil {
				return errors.New("interrupted: the export is not complete, run it again")
			}
			return fmt.Errorf("%s: %w", r.Name(), err)
		}
	}
	if err := to.Commit(); err != nil {
		return err
	}
	e.summary(len(all), x)
	return nil
}

// resources settles the revision, and returns the resources in order. The
// revision is first: what it has, discovery finds, or else it was removed since.
func (e *Export) resources(ctx context.Context) ([]served.Resource, served.Found, error) {
	current, err := e.present(ctx, anchors())
	if err != nil {
		return nil, served.Found{}, err
	}
	found, err := served.Find(ctx, served.Query{
		Discovery: e.Discovery, Objects: e.Objects, Verbs: []string{"list", "create"}, Patterns: e.Resources,
	})
	switch {
	case err != nil:
		return nil, found, err
	case len(found.Failed) > 0:
		return nil, found, fmt.Errorf("the export would not be complete: %s", strings.Join(found.Failed, "; "))
	}
	var all []served.Resource
	for _, r := range found.Resources {
		if e.wanted(r) {
			all = append(all, r)
		}
	}
	catalog := served.Catalog{Discovery: e.Discovery}
	for i := range all {
		known, ok, err := catalog.Resource(all[i].GroupVersionResource)
		if err != nil {
			return nil, found, err
		}
		all[i].Status = ok && known.Status
	}
	inOrder(all)
	if current == "" && len(all) > 0 {
		if current, err = e.present(ctx, all[:1]); err != nil {
			return nil, found, err
		}
	}
	return all, found, e.settle(current)
}

// wanted tells whether a resource is exported.
func (e *Export) wanted(r served.Resource) bool {
	if len(e.Namespaces) > 0 && !r.Namespaced && !isNamespaces(r) {
		return false
	}
	return !passes(r) || slices.Contains(e.Resources, r.Name())
}

// passes tells whether objects of a resource are about one server and a short time. Requests
// for certificates would be those of who imports them.
func passes(r served.Resource) bool {
	return slices.Contains([]string{
		"events", "events.events.k8s.io", "leases.coordination.k8s.io",
		"certificatesigningrequests.certificates.k8s.io", "podcertificaterequests.certificates.k8s.io",
	}, r.Name())
}

func isNamespaces(r served.Resource) bool { return r.Group == "" && r.Resource == "namespaces" }

// resource gives the objects of a resource to the sink.
func (e *Export) resource(ctx context.Context, r served.Resource, x *exported) error {
	add := func(u *unstructured.Unstructured) (int, error) { return e.add(r, u, x) }
	now, err := e.countsItself(ctx, r)
	if err != nil {
		return err
	}
	if now {
		fmt.Fprintf(e.Report, "%s: not at revision %s but as it is now: its objects are kept elsewhere, with versions of their own\n",
			r.Name(), e.Revision)
	}
	if len(e.Namespaces) == 0 {
		return e.pages(ctx, r, scope{now: now}, add)
	}
	for _, namespace := range slices.Compact(slices.Sorted(slices.Values(e.Namespaces))) {
		s := scope{namespace: namespace, now: now}
		if isNamespaces(r) {
			s = scope{fields: "metadata.name=" + namespace}
		}
		if err := e.pages(ctx, r, s, add); err != nil {
			return err
		}
	}
	return nil
}

// add gives an object to the sink, and returns its size.
func (e *Export) add(r served.Resource, u *unstructured.Unstructured, x *exported) (int, error) {
	if err := e.defines(u, r, x.found); err != nil {
		return 0, err
	}
	if selfMade(u, r) {
		x.selfMade++
		return 0, nil
	}
	x.objects++
	if len(u.GetOwnerReferences()) > 0 {
		x.owned++
	}
	if u.GetDeletionTimestamp() != nil {
		x.deleting++
	}
	e.Form.clean(u, r)
	b, err := text(u)
	if err != nil {
		return 0, fmt.Errorf("%s/%s: %w", u.GetNamespace(), u.GetName(), err)
	}
	return len(b), x.to.Add(r, u, b)
}

// defines checks that what a definition of the revision defines can be read: it
// cannot when it was deleted since, and its objects would be missing.
func (e *Export) defines(u *unstructured.Unstructured, r served.Resource, found served.Found) error {
	if r.Group != crdGroup || !isTrue(u, "Established") {
		return nil
	}
	group, _, _ := unstructured.NestedString(u.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(u.Object, "spec", "names", "plural")
	of := schema.GroupResource{Group: group, Resource: plural}
	for gv := range found.Remote {
		if gv.Group == group {
			return nil
		}
	}
	has := func(r served.Resource) bool { return r.GroupResource() == of }
	if !served.Matches(of, e.Resources) || slices.ContainsFunc(found.Resources, has) {
		return nil
	}
	return fmt.Errorf("%s was served at revision %s and is not any more, so its objects cannot be read: "+
		"export a later revision, or name what to export with --resources", of, e.Revision)
}

// isTrue tells whether the object has a condition that is true.
func isTrue(u *unstructured.Unstructured, condition string) bool {
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	return slices.ContainsFunc(all, func(c any) bool {
		m, _ := c.(map[string]any)
		return m["type"] == condition && m["status"] == "True"
	})
}

// summary says what was exported, and what was left out.
func (e *Export) summary(resources int, x *exported) {
	fmt.Fprintf(e.Report, "%d objects of %d resources at revision %s\n", x.objects, resources, e.Revision)
	lines := []struct {
		n    int
		text string
	}{
		{x.selfMade, "%d objects left out that every server makes by itself\n"},
		{x.owned, "%d objects have lost their owner references, which are good on this server only\n"},
		{x.deleting, "%d objects are being deleted: an import makes them as if they were not\n"},
	}
	for _, l := range lines {
		if l.n > 0 {
			fmt.Fprintf(e.Report, l.text, l.n)
		}
	}
	for _, gv := range slices.SortedFunc(maps.Keys(x.found.Remote), func(a, b schema.GroupVersion) int {
		return strings.Compare(a.String(), b.String())
	}) {
		fmt.Fprintf(e.Report, "%s left out: another server has its objects\n", gv)
	}
}
