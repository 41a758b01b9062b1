package authz_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// events are the next ones of a watch, up to that of the named object or to a
// bookmark when the name is empty. Other bookmarks come when the server likes.
func events(t *testing.T, w watch.Interface, last string) []string {
	t.Helper()
	var all []string
	for {
		select {
		case <-time.After(time.Minute):
			t.Fatalf("no event of %q in a minute, only %v", last, all)
		case e, ok := <-w.ResultChan():
			if !ok {
				t.Fatalf("the watch ended after %v", all)
			}
			if e.Type == watch.Bookmark && last != "" {
				continue
			}
			m, err := meta.Accessor(e.Object)
			if err != nil {
				t.Fatalf("%s %v: %v", e.Type, e.Object, err)
			}
			all = append(all, strings.TrimSpace(string(e.Type)+" "+m.GetName()))
			if m.GetName() == last {
				return all
			}
		}
	}
}

// touch changes a ConfigMap.
func touch(t *testing.T, admin kubernetes.Interface, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		m, err := admin.CoreV1().ConfigMaps(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		m.Data = map[string]string{"touched": "at " + m.ResourceVersion}
		if _, err := admin.CoreV1().ConfigMaps(namespace).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func remove(t *testing.T, admin kubernetes.Interface, namespace string, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := admin.CoreV1().ConfigMaps(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilteredWatch(t *testing.T) {
	for name, d := range map[string]controlplane.Storage{"memory": memory.Store{}, "etcd": etcd.Embedded{Dir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			config := filtered(t, d)
			admin := as(t, config, "")
			addNamespace(t, admin, "shop")
			fill(t, admin, "default", letters...)
			give(t, admin, "default", "/configmaps", "b", "e", "new", "end")
			alice := as(t, config, "alice").CoreV1()
			list, err := alice.ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			yes := true
			watches := map[string]watch.Interface{}
			defer func() {
				for _, w := range watches {
					w.Stop()
				}
			}()
			for name, tc := range map[string]struct {
				namespace string
				options   metav1.ListOptions
				before    []string
			}{
				"after the list": {"default", metav1.ListOptions{ResourceVersion: list.ResourceVersion}, nil},
				"whole plane":    {"", metav1.ListOptions{ResourceVersion: list.ResourceVersion}, nil},
				"from the start": {"default", metav1.ListOptions{
					SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
				}, []string{"ADDED b", "ADDED e", "BOOKMARK"}},
			} {
				w, err := alice.ConfigMaps(tc.namespace).Watch(t.Context(), tc.options)
				if err != nil {
					t.Fatal(err)
				}
				watches[name] = w
				if tc.before != nil {
					if diff := cmp.Diff(tc.before, events(t, w, "")); diff != "" {
						t.Errorf("%s: at first (-want, +got):\n%s", name, diff)
					}
				}
			}
			touch(t, admin, "default", "a", "b", "c")
			fill(t, admin, "default", "x", "new", "y")
			fill(t, admin, "shop", "b", "e", "end")
			remove(t, admin, "default", "a", "e", "x")
			touch(t, admin, "default", "new", "d")
			fill(t, admin, "default", "end")
			for name, w := range watches {
				want := []string{"MODIFIED b", "ADDED new", "DELETED e", "MODIFIED new", "ADDED end"}
				if diff := cmp.Diff(want, events(t, w, "end")); diff != "" {
					t.Errorf("%s (-want, +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestFilteredWatchOfCustomResources watches by name and by resource.
func TestFilteredWatchOfCustomResources(t *testing.T) {
	config := filtered(t, memory.Store{})
	admin := as(t, config, "")
	give(t, admin, "default", "example.com/gadgets", "b", "j")
	config.Impersonate.UserName = "alice"
	w, err := dynamic.NewForConfigOrDie(config).Resource(gadgetsResource).Namespace("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	config.Impersonate.UserName = ""
	fillGadgets(t, config)
	if diff := cmp.Diff([]string{"ADDED b", "ADDED j"}, events(t, w, "j")); diff != "" {
		t.Errorf("(-want, +got):\n%s", diff)
	}
}

// TestFilteredWatchFollowsRights takes and gives objects while a watch runs.
func TestFilteredWatchFollowsRights(t *testing.T) {
	config := filtered(t, memory.Store{})
	admin := as(t, config, "")
	fill(t, admin, "default", "a", "b", "c")
	give(t, admin, "default", "/configmaps", "a")
	give(t, admin, "default", "/configmaps", "c", "end")
	w, err := as(t, config, "alice").CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if diff := cmp.Diff([]string{"ADDED a", "ADDED c"}, events(t, w, "c")); diff != "" {
		t.Errorf("at first (-want, +got):\n%s", diff)
	}
	if err := admin.RbacV1().RoleBindings("default").Delete(t.Context(), "configmaps-a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGet(t, admin, authorizationv1.ResourceAttributes{Resource: "configmaps", Namespace: "default", Name: "a"}, false)
	give(t, admin, "default", "/configmaps", "b")
	touch(t, admin, "default", "a", "b")
	remove(t, admin, "default", "a")
	fill(t, admin, "default", "end")
	if diff := cmp.Diff([]string{"MODIFIED b", "ADDED end"}, events(t, w, "end")); diff != "" {
		t.Errorf("after a was taken and b was given (-want, +got):\n%s", diff)
	}
}

// TestFilteredByFunc has an authorizer that lists no rules, and fails.
func TestFilteredByFunc(t *testing.T) {
	f := authz.Func("letters", func(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
		switch {
		case a.GetUser().GetName() != "alice" || a.GetVerb() != "get":
			return authz.Deny, "no", nil
		case a.GetName() == "broken":
			return authz.NoOpinion, "", errors.New("out of order")
		case a.GetResource() == "configmaps" && slices.Contains([]string{"a", "e", "i", "u"}, a.GetName()):
			return authz.Allow, "", nil
		}
		return authz.NoOpinion, "", nil
	})
	config, _ := run(t, memory.Store{}, f, core.Namespaces{}, core.ConfigMaps{},
		authz.FilteredLists{Resources: []schema.GroupResource{{Resource: "configmaps"}}})
	admin, alice, stranger := as(t, config, ""), as(t, config, "alice"), as(t, config, "bob")
	fill(t, admin, "default", letters...)
	if got, _ := pages(t, alice, "default", metav1.ListOptions{Limit: 2}); !cmp.Equal(got, [][]string{{"a", "e"}, {"i"}}) {
		t.Errorf("alice lists %v", got)
	}
	if got, _ := pages(t, stranger, "default", metav1.ListOptions{}); len(got) != 1 || got[0] != nil {
		t.Errorf("who may get none lists %v", got)
	}
	w, err := alice.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if got := events(t, w, "i"); len(got) != 3 {
		t.Errorf("alice watches %v", got)
	}
	fill(t, admin, "default", "broken", "u")
	e, open := <-w.ResultChan()
	if status, ok := e.Object.(*metav1.Status); !open || e.Type != watch.Error || !ok || status.Code != 500 {
		t.Errorf("behind an object that could not be decided about the watch has %v", e)
	}
	if e, open := <-w.ResultChan(); open {
		t.Errorf("after an error the watch has %v", e)
	}
	if l, err := alice.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsInternalError(err) {
		t.Errorf("a list with an object that cannot be decided about: %v, %v", l, err)
	}
	if _, err := alice.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=a"}); err != nil {
		t.Errorf("a list without it: %v", err)
	}
	m, err := admin.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: 1})
	if err != nil || m.RemainingItemCount == nil {
		t.Errorf("the administrator's list does not tell what remains: %v", err)
	}
}
