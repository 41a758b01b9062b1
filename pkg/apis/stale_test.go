package apis_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// staleApples are served from a source that can fail: what has an apple be there, and what has the
// source fail. Its objects are apples, but for one that is hidden.
type staleApples struct {
	served []*apis.Definition
	create func(s *server)
	fail   func(error)
	writes bool
}

func staleVirtual() staleApples {
	o := &orchard{}
	return staleApples{
		served: []*apis.Definition{virtual(o, apis.Stale(time.Hour))},
		create: func(*server) {
			o.set("gala", "Gala")
			o.mu.Lock()
			defer o.mu.Unlock()
			a := o.trees["gala"]
			a.Namespace = "default"
			o.trees["gala"] = a
		},
		fail: o.fail,
	}
}

func staleKept() staleApples {
	b := basket()
	return staleApples{
		served: []*apis.Definition{everything(apis.Kept(b), apis.Stale(time.Hour))},
		create: func(s *server) { s.call(201, http.MethodPost, apples, gala) },
		fail:   b.Fail, writes: true,
	}
}

func staleProject(typed bool) staleApples {
	k := keeptest.NewMemory[Tree]()
	options := append(allOptions(), apis.Stale(time.Hour))
	over := apis.Over("fruit.example.com/v1", "trees")
	view := apis.Project[fruit.Apple, fruit.AppleList]("apples", over, publish, accept, options...)
	if typed {
		view = apis.Project[fruit.Apple, fruit.AppleList]("apples", over, func(t *Tree, a *fruit.Apple) bool {
			a.Spec.Variety = t.Spec.Cultivar
			return !t.Spec.Secret
		}, func(*fruit.Apple, *Tree) error { return nil }, options...)
	}
	return staleApples{
		served: []*apis.Definition{view, apis.Resource[Tree, TreeList]("trees", apis.Status(), apis.Kept(k))},
		create: func(s *server) {
			s.call(201, http.MethodPost, treesPath, tree("bad", `{"cultivar":"Bad","secret":true}`))
			s.call(201, http.MethodPost, treesPath, tree("gala", `{"cultivar":"Gala"}`))
		},
		fail: k.Fail, writes: true,
	}
}

// TestStale: what is not stored has clients get the last good answer, at any version, if that is
// declared. Writes fail.
func TestStale(t *testing.T) {
	t.Parallel()
	for name, made := range map[string]func() staleApples{
		"virtual":                           staleVirtual,
		"kept":                              staleKept,
		"a view of an API":                  func() staleApples { return staleProject(false) },
		"a view of what is stored as it is": func() staleApples { return staleProject(true) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testStale(t, made())
		})
	}
}

func testStale(t *testing.T, a staleApples) {
	t.Helper()
	s := serve(t, a.served...)
	s.call(200, http.MethodGet, apples, "")
	events := s.watch(apples + "?watch=1")
	a.create(s)
	if got := next(t, events); got != "ADDED gala" {
		t.Fatalf("the event is %s", got)
	}
	s.call(200, http.MethodGet, "v1/apples", "")
	a.fail(errors.New("worms"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for s.ask(http.MethodGet, apples, "").code != 200 && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond) // that it had the event is noted after it was sent
	}
	for _, path := range []string{apples + "/gala", apples, apples + "?resourceVersion=0", apples + "?limit=1", "v1/apples"} {
		got := s.call(200, http.MethodGet, path, "")
		if len(got.warnings) != 1 || !strings.Contains(got.warnings[0], " old: ") || !strings.Contains(got.warnings[0], "worms") {
			t.Errorf("%s: the warnings are %q", path, got.warnings)
		}
		if strings.Count(got.body, `"name":"gala"`) != 1 || strings.Contains(got.body, "Bad") {
			t.Errorf("%s: the answer is %s", path, got.body)
		}
	}
	s.call(404, http.MethodGet, apples+"/bad", "")
	if a.writes {
		s.call(503, http.MethodPost, apples, strings.Replace(gala, `"name":"gala"`, `"name":"fuji"`, 1))
		s.patch(503, "merge-patch+json", apples+"/gala?dryRun=All", `{"spec":{"replicas":2}}`)
		s.patch(503, "merge-patch+json", apples+"/gala", `{"spec":{"replicas":2}}`)
		s.call(503, http.MethodDelete, apples+"/gala", "")
	}
	a.fail(nil)
	for _, path := range []string{apples + "/gala", apples, apples + "?resourceVersion=0"} {
		if got := s.call(200, http.MethodGet, path, ""); len(got.warnings) > 0 {
			t.Errorf("after the failure: %s: the warnings are %q", path, got.warnings)
		}
	}
}

// TestStaleErrors: a Stale that would do nothing is told at Build.
func TestStaleErrors(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]*apis.Definition{
		"stored":  apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Stale(time.Hour)),
		"no time": apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Kept(basket()), apis.Stale(0)),
	} {
		if err := d.Err(); err == nil || !strings.Contains(err.Error(), "Stale") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
