package apis_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/keep"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// basket is a keeper of apples.
func basket() *keeptest.Memory[fruit.Apple, *fruit.Apple] { return keeptest.NewMemory[fruit.Apple]() }

// TestKept: what is kept elsewhere is served as what is stored.
func TestKept(t *testing.T) {
	t.Parallel()
	b := basket()
	s := serve(t, everything(apis.Kept(b)))
	created := s.call(201, http.MethodPost, apples, gala)
	created.has("defaults are filled, status is dropped, generation starts",
		"spec.replicas", "1", "status", "{}", "metadata.generation", "1", "kind", `"Apple"`)
	s.call(409, http.MethodPost, apples, gala)
	s.call(422, http.MethodPost, apples, strings.Replace(gala, `"variety":"Gala"`, `"replicas":101`, 1))
	s.call(201, http.MethodPost, apples+"?dryRun=All", strings.Replace(gala, `"name":"gala"`, `"name":"dry"`, 1))
	s.call(404, http.MethodGet, apples+"/dry", "")
	s.call(404, http.MethodPut, apples+"/fuji", strings.Replace(gala, `"name":"gala"`, `"name":"fuji"`, 1))
	s.call(409, http.MethodPut, apples+"/gala", strings.Replace(gala, `"name"`, `"resourceVersion":"999","name"`, 1))
	s.patch(200, "merge-patch+json", apples+"/gala", `{"spec":{"replicas":2},"status":{"ripe":true}}`).
		has("a patch of the spec", "spec.replicas", "2", "metadata.generation", "2", "status", "{}")
	s.patch(200, "merge-patch+json", apples+"/gala/status", `{"spec":{"replicas":7},"status":{"ripe":true}}`).
		has("one of the status", "spec.replicas", "2", "status.ripe", "true")
	s.patch(200, "merge-patch+json", apples+"/gala/scale", `{"spec":{"replicas":3}}`).has("one of the scale", "kind", `"Scale"`, "spec.replicas", "3")
	s.call(200, http.MethodGet, "v1alpha1/namespaces/default/apples/gala", "").has("another version", "spec.sort", `"Gala"`)
	before := s.call(200, http.MethodGet, apples+"/gala", "").at("metadata.resourceVersion")
	if after := s.patch(200, "merge-patch+json", apples+"/gala", `{"spec":{"replicas":3}}`).at("metadata.resourceVersion"); after != before {
		t.Errorf("a patch that changes nothing made version %s of %s", after, before)
	}
	table := s.call(200, http.MethodGet, apples, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	table.has("a table", "kind", `"Table"`)
	if !strings.Contains(table.body, `"cells":["gala","Gala",`) {
		t.Errorf("the table has other cells: %s", table.body)
	}
	kept, err := b.Get(t.Context(), keep.Key{Namespace: "default", Name: "gala"})
	must(t, err)
	if o := kept.Object; o.APIVersion != "fruit.example.com/v1" || o.Kind != "Apple" || o.ResourceVersion != "" || len(o.ManagedFields) == 0 {
		t.Errorf("the keeper got %s, kind %q, version %q, %d managed fields", o.APIVersion, o.Kind, o.ResourceVersion, len(o.ManagedFields))
	}
	s.call(200, http.MethodDelete, apples+"/gala", "")
	s.call(404, http.MethodGet, apples+"/gala", "")
}

// TestKeptApply: managed fields are kept, so that conflicts are found.
func TestKeptApply(t *testing.T) {
	t.Parallel()
	s := serve(t, everything(apis.Kept(basket())))
	apply := func(code int, manager, spec string) *answer {
		t.Helper()
		return s.patch(code, "apply-patch+yaml", apples+"/gala?fieldManager="+manager,
			`{"kind":"Apple","apiVersion":"fruit.example.com/v1","metadata":{"name":"gala"},"spec":`+spec+`}`)
	}
	apply(201, "ann", `{"variety":"Gala","replicas":3,"grafts":[{"name":"a"}]}`)
	apply(200, "bob", `{"grafts":[{"name":"b"}]}`).has("grafts are keyed by name", "spec.grafts", `[{"name":"a"},{"name":"b"}]`)
	apply(409, "bob", `{"replicas":4}`)
	apply(200, "ann", `{"variety":"Gala","replicas":3}`).has("what ann no longer applies goes", "spec.grafts", `[{"name":"b"}]`)
}

// TestKeptFinalizers: an object with a finalizer waits for who set it, and a graceful end is no
// update that is lost.
func TestKeptFinalizers(t *testing.T) {
	t.Parallel()
	s := serve(t, everything(apis.Kept(basket())))
	s.call(201, http.MethodPost, apples, strings.Replace(gala, `"name"`, `"finalizers":["example.com/peel"],"name"`, 1))
	s.call(200, http.MethodDelete, apples+"/gala?propagationPolicy=Foreground", "")
	s.call(200, http.MethodGet, apples+"/gala", "").has("it waits", "metadata.finalizers", `["example.com/peel"]`)
	s.patch(200, "merge-patch+json", apples+"/gala", `{"metadata":{"finalizers":null}}`)
	s.call(404, http.MethodGet, apples+"/gala", "")
}

// TestKeptReads: selectors, pages and watches, of what clients and others wrote.
func TestKeptReads(t *testing.T) {
	t.Parallel()
	b := basket()
	s := serve(t, everything(apis.Kept(b)))
	add := func(name, variety string) {
		_, err := b.Put(t.Context(), &fruit.Apple{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: fruit.AppleSpec{Variety: variety},
		}, 0)
		must(t, err)
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		add(name, "cox")
	}
	s.call(201, http.MethodPost, apples, gala)
	s.call(200, http.MethodGet, apples+"/a", "").has("what others wrote is defaulted", "spec.replicas", "1")
	if got := s.call(200, http.MethodGet, apples+"?fieldSelector=spec.variety%3DGala", ""); strings.Count(got.body, `"spec":`) != 1 {
		t.Errorf("by a selector: %s", got.body)
	}
	page := s.call(200, http.MethodGet, apples+"?limit=4", "")
	events := s.watch("v1/apples?watch=1&fieldSelector=spec.variety%3Dcox&resourceVersion=" + strings.Trim(page.at("metadata.resourceVersion"), `"`))
	add("f", "cox")
	if got := next(t, events); got != "ADDED f" {
		t.Errorf("somebody else added f: %s", got)
	}
	rest := s.call(200, http.MethodGet, apples+"?limit=4&continue="+strings.Trim(page.at("metadata.continue"), `"`), "")
	if got := strings.Count(page.body, `"spec":`) + strings.Count(rest.body, `"spec":`); got != 6 || rest.at("metadata.continue") != "" {
		t.Errorf("pages have %d objects, though there were 6: %s, %s", got, page.body, rest.body)
	}
	s.call(200, http.MethodDelete, apples+"/a", "")
	if got := next(t, events); got != "DELETED a" {
		t.Errorf("a was deleted: %s", got)
	}
	s.call(410, http.MethodGet, apples+"?resourceVersionMatch=Exact&resourceVersion=1", "")
	b.Fail(errors.New("worms"))
	if got := s.call(503, http.MethodGet, apples+"/b", ""); !strings.Contains(got.body, "worms") {
		t.Errorf("the answer does not say why: %s", got.body)
	}
	b.Fail(nil)
	s.call(200, http.MethodDelete, apples, "")
	if got := s.call(200, http.MethodGet, apples, ""); strings.Contains(got.body, `"spec":`) {
		t.Errorf("after deletecollection: %s", got.body)
	}
}

// TestKeptBroken: what is kept and is no object harms only itself.
func TestKeptBroken(t *testing.T) {
	t.Parallel()
	b := basket()
	s := serve(t, everything(apis.Kept(b)))
	s.call(201, http.MethodPost, apples, gala)
	s.call(201, http.MethodPost, apples, strings.Replace(gala, `"name":"gala"`, `"name":"fuji"`, 1))
	b.Break(keep.Key{Namespace: "default", Name: "fuji"}, errors.New("worms"))
	if got := strings.Join(names(s.call(200, http.MethodGet, apples, "")), " "); got != "gala" {
		t.Errorf("the list has %q", got)
	}
	if got := s.call(500, http.MethodGet, apples+"/fuji", ""); !strings.Contains(got.body, "worms") || !strings.Contains(got.body, "default/fuji") {
		t.Errorf("the answer does not say what is wrong: %s", got.body)
	}
	s.patch(500, "merge-patch+json", apples+"/fuji", `{"spec":{"replicas":2}}`)
	s.call(200, http.MethodDelete, apples+"/fuji", "")
	s.call(404, http.MethodGet, apples+"/fuji", "")
}

func TestKeptErrors(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*apis.Definition{
		"another type": apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Kept(keeptest.NewMemory[corev1.Pod]())),
		"no keeper":    apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Kept[fruit.Apple](nil)),
		"two keepers":  apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Kept(basket()), apis.Kept(basket())),
	} {
		if err := d.Err(); err == nil || !strings.Contains(err.Error(), "Kept") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
