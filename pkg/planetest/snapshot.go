package planetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/sailplane-dev/sailplane/pkg/feed"
)

// Snapshot is the content of a plane, as YAML that is the same after the same actions:
// without managed fields, UIDs and resource versions, and with <time> for points in time.
type Snapshot struct {
	objects map[string]string // YAML by what names the object, in the order of names
}

// Snapshot reads every object that the plane keeps, also those a plane has by itself,
// with all rights. In a view of a namespace (see [Plane.In]) it reads the objects of
// the namespace, and leaves out its name. The test fails when an object cannot be read.
func (p *Plane) Snapshot(t TB) Snapshot {
	t.Helper()
	// A plane registers its groups when a client asks for them.
	if err := p.admin().Discovery().RESTClient().Get().AbsPath("/apis").
		SetHeader("Accept", "application/json").Do(contextOf(t)).Error(); err != nil {
		t.Fatalf("snapshot: list the groups: %v", err)
	}
	return p.snapshot(t, func(*feed.Object) bool { return true }, func(*unstructured.Unstructured) bool { return true })
}

// Content is the snapshot of objects written since the plane started, without
// those that a plane writes by itself: events, leases of kube-system,
// APIServices of the plane's own groups, and default roles.
func (p *Plane) Content(t TB) Snapshot {
	t.Helper()
	return p.snapshot(t, func(o *feed.Object) bool {
		return o.Revision > p.server.revision && o.Type.Resource.Resource != "events" &&
			(o.Type.Resource.Resource != "leases" || o.Namespace != metav1.NamespaceSystem)
	}, func(o *unstructured.Unstructured) bool {
		_, role := o.GetLabels()["kubernetes.io/bootstrapping"]
		_, service := o.GetLabels()["kube-aggregator.kubernetes.io/automanaged"]
		return !role && !service
	})
}

// snapshot has the objects for which both functions hold.
func (p *Plane) snapshot(t TB, which func(*feed.Object) bool, also func(*unstructured.Unstructured) bool) Snapshot {
	t.Helper()
	ctx, cancel := p.within(contextOf(t))
	defer cancel()
	feed := p.server.plane.Feed()
	if err := feed.CatchUp(ctx); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	// The feed tells which resources have objects: only those are listed.
	wanted := map[schema.GroupResource]sets.Set[cache.ObjectName]{}
	for o := range feed.All() {
		if (p.namespace != "" && o.Namespace != p.namespace) || !which(o) {
			continue
		}
		if wanted[o.Type.Resource] == nil {
			wanted[o.Type.Resource] = sets.New[cache.ObjectName]()
		}
		wanted[o.Type.Resource].Insert(cache.NewObjectName(o.Namespace, o.Name))
	}
	s := Snapshot{objects: map[string]string{}}
	for resource, names := range wanted {
		objects, err := p.list(ctx, resource)
		if err != nil {
			t.Fatalf("snapshot: list %s: %v", resource, err)
		}
		for i := range objects {
			if o := &objects[i]; names.Has(cache.MetaObjectToName(o)) && also(o) {
				s.add(o, p.namespace)
			}
		}
	}
	return s
}

// list reads all objects of a resource. One that is not served any more has none.
func (p *Plane) list(ctx context.Context, of schema.GroupResource) ([]unstructured.Unstructured, error) {
	admin := p.admin()
	resource, err := admin.RESTMapper().ResourceFor(of.WithVersion(""))
	if err != nil {
		return nil, err
	}
	list, err := admin.Dynamic().Resource(resource).Namespace(p.namespace).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// add adds an object. The namespace is left out of it.
func (s Snapshot) add(o *unstructured.Unstructured, namespace string) {
	normalise(o)
	if namespace != "" {
		o.SetNamespace("")
	}
	s.objects[fmt.Sprintf("%s (%s)", describe(o), o.GetAPIVersion())] = asYAML(o)
}

// Names are the objects of the snapshot in order, each as "Widget default/lever
// (example.com/v1)".
func (s Snapshot) Names() []string { return slices.Sorted(maps.Keys(s.objects)) }

// YAML is the snapshot as one text, a document for each object.
func (s Snapshot) YAML() string {
	var b strings.Builder
	for i, name := range s.Names() {
		if i > 0 {
			b.WriteString("---\n")
		}
		b.WriteString(s.objects[name])
	}
	return b.String()
}

// Diff compares with a later snapshot, "" if they are equal: objects that are new
// (+), gone (-) and changed (~), with their lines.
func (s Snapshot) Diff(later Snapshot) string {
	all := maps.Clone(s.objects)
	maps.Copy(all, later.objects)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		before, was := s.objects[name]
		after, is := later.objects[name]
		switch {
		case !was:
			fmt.Fprintf(&b, "+ %s\n%s", name, lineDiff("", after))
		case !is:
			fmt.Fprintf(&b, "- %s\n", name)
		case before != after:
			fmt.Fprintf(&b, "~ %s\n%s", name, lineDiff(before, after))
		}
	}
	return b.String()
}
