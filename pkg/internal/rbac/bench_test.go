package rbac_test

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/sailplane-dev/sailplane/pkg/internal/rbac"
)

// crowd has 1,000 cluster-wide bindings of a role each, the last one to group
// lucky, and knows its roles by name as a cache does.
type crowd struct {
	store
	byName map[string]*rbacv1.ClusterRole
	all    []*rbacv1.RoleBinding
}

func (c *crowd) ClusterRole(name string) (*rbacv1.ClusterRole, error) { return c.byName[name], nil }

func (c *crowd) Bindings(namespace string, _ rbac.Key) ([]*rbacv1.RoleBinding, error) {
	if namespace == "" {
		return c.all, nil
	}
	return nil, nil
}

func newCrowd() *crowd {
	c := &crowd{byName: map[string]*rbacv1.ClusterRole{}}
	for i := range 1000 {
		name := fmt.Sprintf("team-%d", i)
		group := aGroup(name)
		if i == 999 {
			group = aGroup("lucky")
		}
		c.byName[name] = clusterRole(name, rule("get,list,watch", "-,apps", "configmaps,pods,deployments", "web"), rule("create,get", "-", "pods/log,pods"))
		c.clusterBindings = append(c.clusterBindings, clusterBinding(name, name, aUser("lead-of-"+name), group))
	}
	c.all, _ = c.store.Bindings("", rbac.Key{})
	return c
}

func crowds() map[string]rbac.Reader {
	c := newCrowd()
	x := index(&c.store)
	x.Reader = c
	return map[string]rbac.Reader{"list": c, "index": x}
}

func asked(groups ...string) *authorizer.AttributesRecord {
	a := getPods("shop")
	a.User = &user.DefaultInfo{Name: "ann", Groups: append([]string{"system:authenticated"}, groups...)}
	return &a
}

func BenchmarkAuthorize(b *testing.B) {
	for how, reader := range crowds() {
		a := rbac.New(reader)
		for name, request := range map[string]*authorizer.AttributesRecord{"allowed": asked("lucky"), "unknown": asked("unlucky")} {
			b.Run(how+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := a.Authorize(b.Context(), request); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Not parallel: allocations are counted for the whole process.
func TestAllocations(t *testing.T) {
	for how, reader := range crowds() {
		a := rbac.New(reader)
		for name, tc := range map[string]struct {
			reason  string
			request *authorizer.AttributesRecord
			want    authorizer.Decision
			most    float64
		}{
			"allowed": {"the reason is made once, at the end", asked("lucky"), authorizer.DecisionAllow, 1},
			"unknown": {"looking costs nothing", asked("unlucky"), authorizer.DecisionNoOpinion, 0},
		} {
			got := testing.AllocsPerRun(10, func() {
				if decision, _, _ := a.Authorize(t.Context(), tc.request); decision != tc.want {
					t.Errorf("%s by %s: got %v", name, how, decision)
				}
			})
			if got > tc.most {
				t.Errorf("%s by %s: %s: got %v allocations, want at most %v", name, how, tc.reason, got, tc.most)
			}
		}
	}
}
