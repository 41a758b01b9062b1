package planetest

import (
	"context"
	"slices"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// TestFilteredElsewhere: who may get some objects gets these in lists, pages and watches of what is
// not stored as well.
func TestFilteredElsewhere(t *testing.T) {
	t.Parallel()
	trees := []string{"elm", "fir", "oak", "yew"}
	mine := []string{"elm", "oak", "yew"}
	gv := func(group string) schema.GroupVersion {
		return schema.GroupVersion{Group: group + ".example.com", Version: "v1"}
	}
	all := func(context.Context, apis.Query) ([]fruit.Apple, error) {
		var apples []fruit.Apple
		for _, name := range trees {
			apples = append(apples, fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		}
		return apples, nil
	}
	same := func(below, above *fruit.Apple) bool { return true }
	groups := []*apis.Group{
		apis.NewGroup(gv("virtual"), nil, nil, apis.Virtual[fruit.Apple, fruit.AppleList]("apples", apis.Poll(time.Hour, all))),
		apis.NewGroup(gv("kept"), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Kept(keeptest.NewMemory[fruit.Apple]()))),
		apis.NewGroup(gv("view"), nil, nil, apis.Project[fruit.Apple, fruit.AppleList]("apples", apis.Over("kept.example.com/v1", "apples"), same, nil)),
	}
	filtered := authz.FilteredLists{}
	rules := []rbacv1.PolicyRule{}
	for _, kind := range []string{"virtual", "kept", "view"} {
		filtered.Resources = append(filtered.Resources, gv(kind).WithResource("apples").GroupResource())
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{gv(kind).Group}, Resources: []string{"apples"}, Verbs: []string{"get"}, ResourceNames: mine})
	}
	plane := planetest.Options{NoDefaults: true}.Start(t, core.Namespaces{}, authz.RBAC{}, filtered, groups[0], groups[1], groups[2])
	for _, name := range trees {
		o := planetest.Object("kept.example.com/v1", "Apple", "default/"+name)
		plane.Apply(t, planetest.Objects(o))
	}
	plane.Apply(t, planetest.Objects(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "ann"}, Rules: rules},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "ann"}, Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "ann"}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "ann"},
		}))
	for _, kind := range []string{"virtual", "kept", "view"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			apples := plane.As("ann").Dynamic().Resource(gv(kind).WithResource("apples")).Namespace("default")
			plane.Eventually(t, func(ctx context.Context) error { // until RBAC knows the role
				_, err := apples.Get(ctx, mine[0], metav1.GetOptions{})
				return err
			})
			var got []string
			token, version := "", ""
			for {
				page, err := apples.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: token})
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range page.Items {
					got = append(got, o.GetName())
				}
				version = page.GetResourceVersion()
				if token = page.GetContinue(); token == "" {
					break
				}
			}
			if !slices.Equal(got, mine) {
				t.Errorf("the pages have %v, want %v", got, mine)
			}
			w, err := apples.Watch(t.Context(), metav1.ListOptions{
				SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			got = nil
			for e := range w.ResultChan() {
				if e.Type == watch.Bookmark {
					break
				}
				o, ok := e.Object.(metav1.Object)
				if !ok {
					t.Fatalf("the watch has %v after version %s", e, version)
				}
				got = append(got, o.GetName())
			}
			if slices.Sort(got); !slices.Equal(got, mine) {
				t.Errorf("a watch of all has %v, want %v", got, mine)
			}
		})
	}
}
