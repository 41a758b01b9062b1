package apis_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

// Tree is what the gardener edits, of whose trees others see the apples.
type Tree struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TreeSpec   `json:"spec,omitempty"`
	Status TreeStatus `json:"status,omitempty"`
}

type TreeSpec struct {
	Cultivar string `json:"cultivar,omitempty"`
	Secret   bool   `json:"secret,omitempty"`
	Soil     string `json:"soil,omitempty"`
	Wanted   *int32 `json:"wanted,omitempty"`
}

type TreeStatus struct {
	Apples int32 `json:"apples,omitempty"`
}

type TreeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Tree `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (t *Tree) DeepCopyObject() runtime.Object {
	out := *t
	t.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if t.Spec.Wanted != nil {
		out.Spec.Wanted = new(*t.Spec.Wanted)
	}
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *TreeList) DeepCopyObject() runtime.Object {
	out := *l
	out.Items = nil
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*Tree))
	}
	return &out
}

func trees() *apis.Definition {
	return apis.Resource[Tree, TreeList]("trees", apis.Status())
}

// part is what the view knows of a tree: not its soil.
type part struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Cultivar string `json:"cultivar,omitempty"`
		Secret   bool   `json:"secret,omitempty"`
		Wanted   *int32 `json:"wanted,omitempty"`
	} `json:"spec,omitempty"`
	Status TreeStatus `json:"status,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (p *part) DeepCopyObject() runtime.Object {
	out := *p
	return &out
}

func publish(t *part, a *fruit.Apple) bool {
	a.Spec.Variety, a.Spec.Replicas, a.Status.Replicas = t.Spec.Cultivar, t.Spec.Wanted, t.Status.Apples
	return !t.Spec.Secret
}

func accept(a *fruit.Apple, t *part) error {
	if a.Spec.Variety == "Elstar" {
		return field.Invalid(field.NewPath("spec", "variety"), a.Spec.Variety, "does not grow here")
	}
	t.Spec.Cultivar, t.Spec.Wanted, t.Status.Apples = a.Spec.Variety, a.Spec.Replicas, a.Status.Replicas
	return nil
}

func projection() *apis.Definition {
	return apis.Project[fruit.Apple, fruit.AppleList]("apples", apis.Over("fruit.example.com/v1", "trees"), publish, accept, allOptions()...)
}

// stored is the same view, of which a read is not encoded: the Go type is the one that is stored.
func stored() *apis.Definition {
	return apis.Project[fruit.Apple, fruit.AppleList]("apples", apis.Over("fruit.example.com/v1", "trees"),
		func(t *Tree, a *fruit.Apple) bool {
			a.Spec.Variety, a.Spec.Replicas, a.Status.Replicas = t.Spec.Cultivar, t.Spec.Wanted, t.Status.Apples
			return !t.Spec.Secret
		},
		func(a *fruit.Apple, t *Tree) error {
			if a.Spec.Variety == "Elstar" {
				return field.Invalid(field.NewPath("spec", "variety"), a.Spec.Variety, "does not grow here")
			}
			t.Spec.Cultivar, t.Spec.Wanted, t.Status.Apples = a.Spec.Variety, a.Spec.Replicas, a.Status.Replicas
			return nil
		}, allOptions()...)
}

// both serves a view that is read by the API below, and one that is read where it is stored.
func both(t *testing.T, test func(*testing.T, *server)) {
	t.Helper()
	t.Parallel()
	for name, view := range map[string]*apis.Definition{"by its API": projection(), "where it is stored": stored()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, serve(t, view, trees()))
		})
	}
}

const treesPath = "v1/namespaces/default/trees"

func tree(name string, spec string) string {
	return fmt.Sprintf(`{"apiVersion":"fruit.example.com/v1","kind":"Tree","metadata":{"name":%q,"labels":{"tree":"old"}},"spec":%s}`, name, spec)
}

// TestProjectReads: what is below is read as what publish makes of it, if it is shown.
func TestProjectReads(t *testing.T) { both(t, testProjectReads) }

func testProjectReads(t *testing.T, s *server) {
	t.Helper()
	below := s.call(201, http.MethodPost, treesPath, tree("gala", `{"cultivar":"Gala","wanted":3,"soil":"loam"}`))
	s.call(201, http.MethodPost, treesPath, tree("bad", `{"cultivar":"Bad","secret":true}`))
	s.call(201, http.MethodPost, treesPath, tree("wild", `{"cultivar":"wild","wanted":1}`))
	s.call(200, http.MethodGet, apples+"/gala", "").has("a view", "kind", `"Apple"`, "spec.variety", `"Gala"`, "spec.replicas", "3",
		"metadata.uid", below.at("metadata.uid"), "metadata.resourceVersion", below.at("metadata.resourceVersion"),
		"metadata.labels.tree", `"old"`)
	s.call(404, http.MethodGet, apples+"/bad", "").has("of the view", "details.kind", `"apples"`)
	s.call(404, http.MethodGet, apples+"/none", "").has("of the view", "message", `"apples.fruit.example.com \"none\" not found"`)
	for query, want := range map[string]string{
		"":                                    "gala wild",
		"?labelSelector=tree":                 "gala wild",
		"?labelSelector=%21tree":              "",
		"?fieldSelector=spec.variety%3DGala":  "gala",
		"?fieldSelector=metadata.name%3Dbad":  "",
		"?fieldSelector=metadata.name%3Dwild": "wild",
		"?resourceVersion=0":                  "gala wild",
	} {
		if got := strings.Join(names(s.call(200, http.MethodGet, apples+query, "")), " "); got != want {
			t.Errorf("%q has %q, not %q", query, got, want)
		}
	}
	s.call(200, http.MethodGet, "v1alpha1/namespaces/default/apples/wild", "").has("another version", "spec.sort", `"wild"`)
	s.call(200, http.MethodGet, apples+"/gala/scale", "").has("a scale", "spec.replicas", "3")
}

func names(list *answer) []string {
	var all []string
	for _, item := range list.Object["items"].([]any) {
		all = append(all, (&unstructured.Unstructured{Object: item.(map[string]any)}).GetName())
	}
	return all
}

// TestProjectPages: pages are filled with what is shown, and go on where they were.
func TestProjectPages(t *testing.T) { both(t, testProjectPages) }

func testProjectPages(t *testing.T, s *server) {
	t.Helper()
	for i := range 60 {
		spec := `{"cultivar":"Bad","secret":true}`
		if i%20 == 7 || i > 57 {
			spec = `{"cultivar":"Gala"}`
		}
		s.call(201, http.MethodPost, treesPath, tree(fmt.Sprintf("t%02d", i), spec))
	}
	var all []string
	next, version := "", ""
	for page := 1; page == 1 || next != ""; page++ {
		list := s.call(200, http.MethodGet, apples+"?limit=2&continue="+next, "")
		list.has("nobody learns what is hidden", "metadata.remainingItemCount", "")
		all = append(all, names(list)...)
		if version == "" {
			version = list.at("metadata.resourceVersion")
			s.call(201, http.MethodPost, treesPath, tree("t99", `{"cultivar":"Late"}`))
		}
		list.has("one snapshot", "metadata.resourceVersion", version)
		next = strings.Trim(list.at("metadata.continue"), `"`)
		if page > 3 {
			t.Fatalf("page %d of 5 objects, two each", page)
		}
	}
	if got, want := strings.Join(all, " "), "t07 t27 t47 t58 t59"; got != want {
		t.Errorf("listed %s, want %s", got, want)
	}
}

// TestProjectWrites: what users write is validated as the view and arrives below, where what they
// do not see stays.
func TestProjectWrites(t *testing.T) { both(t, testProjectWrites) }

func testProjectWrites(t *testing.T, s *server) {
	t.Helper()
	created := s.call(201, http.MethodPost, apples, gala)
	created.has("the answer is the view", "kind", `"Apple"`, "spec.replicas", "1", "metadata.labels.tree", `"old"`)
	s.call(200, http.MethodGet, treesPath+"/gala", "").has("it is below", "spec.cultivar", `"Gala"`, "spec.wanted", "1",
		"metadata.uid", created.at("metadata.uid"), "metadata.resourceVersion", created.at("metadata.resourceVersion"))
	s.call(409, http.MethodPost, apples, gala).has("of the view", "details.kind", `"apples"`)
	s.call(201, http.MethodPost, apples, strings.Replace(gala, `"name":"gala"`, `"generateName":"g-"`, 1))
	s.patch(200, "merge-patch+json", treesPath+"/gala", `{"spec":{"soil":"loam"},"metadata":{"annotations":{"a":"1"}}}`)
	s.patch(200, "merge-patch+json", apples+"/gala", `{"spec":{"replicas":5},"metadata":{"labels":{"b":"2"}}}`).
		has("a patch", "spec.replicas", "5")
	s.call(200, http.MethodGet, treesPath+"/gala", "").has("below", "spec.wanted", "5", "spec.soil", `"loam"`,
		"metadata.annotations.a", `"1"`, "metadata.labels.b", `"2"`)
	s.patch(422, "merge-patch+json", apples+"/gala", `{"spec":{"replicas":500}}`).has("the view's rules", "details.kind", `"Apple"`)
	s.call(422, http.MethodPost, apples, strings.ReplaceAll(gala, "Gala", "Elstar")).
		has("accept refuses", "message", `"Apple.fruit.example.com \"gala\" is invalid: spec.variety: Invalid value: \"Elstar\": does not grow here"`)
	s.call(200, http.MethodPut, apples+"/gala?dryRun=All", strings.Replace(gala, `"Gala"`, `"Gala","replicas":9`, 1))
	s.call(200, http.MethodGet, treesPath+"/gala", "").has("dry run", "spec.wanted", "5")
	stale := strings.Replace(gala, `"name"`, `"resourceVersion":`+created.at("metadata.resourceVersion")+`,"name"`, 1)
	s.call(409, http.MethodPut, apples+"/gala", stale)
	s.call(409, http.MethodDelete, apples+"/gala", `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"another"}}`)
	s.call(200, http.MethodDelete, apples+"/gala", "")
	s.call(404, http.MethodGet, treesPath+"/gala", "")
	s.call(201, http.MethodPost, treesPath, tree("bad", `{"cultivar":"Bad","secret":true}`))
	s.call(404, http.MethodDelete, apples+"/bad", "")
	s.call(404, http.MethodPut, apples+"/bad", strings.ReplaceAll(gala, "gala", "bad"))
	s.call(409, http.MethodPost, apples, strings.ReplaceAll(gala, "gala", "bad"))
	s.call(200, http.MethodDelete, apples, "")
	if got := names(s.call(200, http.MethodGet, treesPath, "")); len(got) != 1 || got[0] != "bad" {
		t.Errorf("after the collection was deleted there are %v", got)
	}
}

// TestProjectConflicts: writers of the view and of what is below do not undo each other's changes.
func TestProjectConflicts(t *testing.T) { both(t, testProjectConflicts) }

func testProjectConflicts(t *testing.T, s *server) {
	t.Helper()
	s.call(201, http.MethodPost, apples, gala)
	const writers, writes = 3, 5
	var all sync.WaitGroup
	for w := range writers {
		for path, body := range map[string]string{
			apples:    `{"metadata":{"labels":{"view%d-%d":"x"}}}`,
			treesPath: `{"metadata":{"labels":{"below%d-%d":"x"}},"spec":{"soil":"loam"}}`,
		} {
			all.Go(func() {
				for n := range writes {
					s.patch(200, "merge-patch+json", path+"/gala", fmt.Sprintf(body, w, n))
				}
			})
		}
	}
	all.Wait()
	got := s.call(200, http.MethodGet, apples+"/gala", "").GetLabels()
	if want := 2*writers*writes + 1; len(got) != want {
		t.Errorf("%d labels, want %d: %v", len(got), want, got)
	}
}

// TestProjectStatus: a status is written where the status below is, and a scale as the replicas.
func TestProjectStatus(t *testing.T) { both(t, testProjectStatus) }

func testProjectStatus(t *testing.T, s *server) {
	t.Helper()
	s.call(201, http.MethodPost, apples, gala)
	s.patch(200, "merge-patch+json", apples+"/gala/status", `{"status":{"replicas":4},"spec":{"replicas":9}}`).
		has("the status only", "status.replicas", "4", "spec.replicas", "1")
	s.patch(200, "merge-patch+json", apples+"/gala", `{"status":{"replicas":7}}`).has("ignored", "status.replicas", "4")
	s.patch(200, "merge-patch+json", apples+"/gala/scale", `{"spec":{"replicas":6}}`).has("scaled", "spec.replicas", "6")
	s.call(200, http.MethodGet, treesPath+"/gala", "").has("below", "status.apples", "4", "spec.wanted", "6")
}

// TestProjectFinalizers: an object with finalizers is marked below, and goes when they are removed,
// wherever that is.
func TestProjectFinalizers(t *testing.T) { both(t, testProjectFinalizers) }

func testProjectFinalizers(t *testing.T, s *server) {
	t.Helper()
	for _, path := range []string{apples, treesPath} {
		s.call(201, http.MethodPost, apples, strings.Replace(gala, `"name"`, `"finalizers":["example.com/a"],"name"`, 1))
		s.call(200, http.MethodDelete, apples+"/gala", "")
		if s.call(200, http.MethodGet, apples+"/gala", "").at("metadata.deletionTimestamp") == "" {
			t.Error("the view does not show that it is deleted")
		}
		if s.call(200, http.MethodGet, treesPath+"/gala", "").at("metadata.deletionTimestamp") == "" {
			t.Error("it is not deleted below")
		}
		s.patch(200, "merge-patch+json", path+"/gala", `{"metadata":{"finalizers":null}}`)
		s.call(404, http.MethodGet, apples+"/gala", "")
		s.call(404, http.MethodGet, treesPath+"/gala", "")
	}
}

// TestProjectApply: two users of the view are told of each other's fields, and what the view does
// not have stays with its owner below.
func TestProjectApply(t *testing.T) { both(t, testProjectApply) }

func testProjectApply(t *testing.T, s *server) {
	t.Helper()
	const body = `{"apiVersion":"fruit.example.com/v1","kind":"Apple","metadata":{"name":"gala"},"spec":{"variety":"Gala","replicas":%d}}`
	s.patch(201, "apply-patch+yaml", apples+"/gala?fieldManager=one", fmt.Sprintf(body, 2))
	s.patch(409, "apply-patch+yaml", apples+"/gala?fieldManager=two", fmt.Sprintf(body, 3))
	s.patch(200, "apply-patch+yaml", apples+"/gala?fieldManager=two&force=true", fmt.Sprintf(body, 3)).has("forced", "spec.replicas", "3")
	s.patch(409, "apply-patch+yaml", apples+"/gala?fieldManager=one", fmt.Sprintf(body, 2))
	s.patch(200, "merge-patch+json", treesPath+"/gala?fieldManager=gardener", `{"spec":{"soil":"loam"}}`)
	view := s.call(200, http.MethodGet, apples+"/gala", "")
	below := s.call(200, http.MethodGet, treesPath+"/gala", "")
	owned := func(a *answer, manager string) string {
		var all []string
		for _, m := range a.GetManagedFields() {
			if m.Manager == manager {
				all = append(all, m.FieldsV1.GetRawString())
			}
		}
		return strings.Join(all, " ")
	}
	if got := owned(view, "two"); !strings.Contains(got, "f:replicas") {
		t.Errorf("of the view two has %q", got)
	}
	if got := owned(below, "apples.fruit.example.com"); !strings.Contains(got, "f:wanted") || strings.Contains(got, "f:soil") {
		t.Errorf("below the view has %q", got)
	}
	if got := owned(below, "gardener"); !strings.Contains(got, "f:soil") || strings.Contains(got, "f:wanted") {
		t.Errorf("below the gardener has %q", got)
	}
	if view.GetAnnotations() != nil {
		t.Errorf("the view shows the annotations %v", view.GetAnnotations())
	}
}

// TestProjectWatch: changes are those of what is shown: it comes and goes as it is shown and hidden.
func TestProjectWatch(t *testing.T) { both(t, testProjectWatch) }

func testProjectWatch(t *testing.T, s *server) {
	t.Helper()
	s.call(201, http.MethodPost, treesPath, tree("first", `{"cultivar":"Gala"}`))
	s.call(201, http.MethodPost, treesPath, tree("bad", `{"cultivar":"Bad","secret":true}`))
	list := s.call(200, http.MethodGet, apples, "")
	from := s.watch(apples + "?watch=1&resourceVersion=" + strings.Trim(list.at("metadata.resourceVersion"), `"`))
	all := s.watch("v1/apples?watch=1")
	streamed := s.watch(apples + "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true")
	wild := s.watch(apples + "?watch=1&fieldSelector=spec.variety%3Dwild")
	one := s.watch(apples + "?watch=1&fieldSelector=metadata.name%3Dbad")
	expect(t, all, "ADDED first")
	expect(t, streamed, "ADDED first", "BOOKMARK ")
	s.patch(200, "merge-patch+json", treesPath+"/bad", `{"spec":{"soil":"loam"}}`)
	s.patch(200, "merge-patch+json", treesPath+"/bad", `{"spec":{"secret":false}}`)
	s.patch(200, "merge-patch+json", treesPath+"/bad", `{"spec":{"cultivar":"wild"}}`)
	s.patch(200, "merge-patch+json", treesPath+"/bad", `{"spec":{"cultivar":"Gala"}}`)
	s.patch(200, "merge-patch+json", treesPath+"/bad", `{"spec":{"secret":true}}`)
	s.call(200, http.MethodDelete, treesPath+"/bad", "")
	s.call(200, http.MethodDelete, apples+"/first", "")
	bad := []string{"ADDED bad", "MODIFIED bad", "MODIFIED bad", "DELETED bad"}
	for _, events := range []<-chan string{from, all, streamed} {
		expect(t, events, append(bad, "DELETED first")...)
	}
	expect(t, one, bad...)
	expect(t, wild, "ADDED bad", "DELETED bad")
	expect(t, s.watch(apples+"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&resourceVersion="+
		strings.Trim(list.at("metadata.resourceVersion"), `"`)), "BOOKMARK ") // not what was there at that version
	s.call(200, http.MethodGet, apples+"?watch=1&timeoutSeconds=1&resourceVersion=1", "").has("gone", "object.code", "410")
}

func expect(t *testing.T, events <-chan string, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := next(t, events); got != w {
			t.Fatalf("got %q, want %q", got, w)
		}
	}
}

// TestProjectReadOnly: without accept there is nothing that writes.
func TestProjectReadOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, apis.Project[fruit.Apple, fruit.AppleList]("apples", apis.Over("fruit.example.com/v1", "trees"),
		func(below *unstructured.Unstructured, a *fruit.Apple) bool {
			a.Spec.Variety, _, _ = unstructured.NestedString(below.Object, "spec", "cultivar")
			return true
		}, nil), trees())
	s.call(201, http.MethodPost, treesPath, tree("gala", `{"cultivar":"Gala"}`))
	s.call(200, http.MethodGet, apples+"/gala", "").has("an unstructured object", "spec.variety", `"Gala"`)
	s.call(405, http.MethodPost, apples, gala)
	s.call(405, http.MethodDelete, apples+"/gala", "")
}

// TestProjectAbsent: a resource that is not there is a 503 that names it.
func TestProjectAbsent(t *testing.T) {
	t.Parallel()
	s := serve(t, projection())
	for _, get := range []string{"", "/gala", "?watch=1"} {
		if got := s.call(503, http.MethodGet, apples+get, ""); !strings.Contains(got.body, "trees.fruit.example.com") {
			t.Errorf("%q: the answer does not say what is missing: %s", get, got.body)
		}
	}
	s.call(503, http.MethodPost, apples, gala)
}
