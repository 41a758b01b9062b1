package rbac

import (
	"context"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// permissions let everybody send every request. To escalate and bind is for
// those who are named after it: "escalate" any role, "escalate-one" the cluster
// role "one", "bind" any in namespace "held".
func permissions(p *controlplane.Plan) error {
	p.Authorize("permissions", authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		who, allowed := a.GetUser().GetName(), true
		switch a.GetVerb() {
		case "escalate":
			allowed = who == "escalate" || who == "escalate-one" && a.GetName() == "one"
		case "bind":
			allowed = who == "bind" && a.GetNamespace() == "held" && a.GetAPIGroup() == rbacv1.GroupName && a.GetName() != ""
		}
		if allowed {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "no", nil
	}))
	return nil
}

// holdings: "writer" may get pods in namespace "held", and "chief" everything.
func holdings(t *testing.T, config *rest.Config) {
	t.Helper()
	ctx, admin := t.Context(), client(t, config, "")
	everywhere := clusterRolled("everything", everything()...)
	gathering := clusterRolled("gathering")
	gathering.AggregationRule = gathers()
	for _, r := range []*rbacv1.ClusterRole{
		everywhere, gathering, clusterRolled("one"), clusterRolled("pods", may("get", "pods")), clusterRolled("secrets", may("get", "secrets")),
	} {
		if _, err := admin.ClusterRoles().Create(ctx, r, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"labels", "finalizers", "more", "fewer", "deleted"} {
		if _, err := admin.Roles("held").Create(ctx, rolled(name, may("get", "secrets")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.RoleBindings("held").Create(ctx, bound("writer", "pods", "writer"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// A role that is missing gives nothing and takes nothing away.
	if _, err := admin.ClusterRoleBindings().Create(ctx, clusterBound("missing", "missing", "writer"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ClusterRoleBindings().Create(ctx, clusterBound("chief", "everything", "chief"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	// The writes are seen when the watch caches have them.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		roles, err := admin.ClusterRoles().List(ctx, metav1.ListOptions{ResourceVersion: cached})
		if err != nil {
			t.Fatal(err)
		}
		some, err := admin.RoleBindings("held").List(ctx, metav1.ListOptions{ResourceVersion: cached})
		if err != nil {
			t.Fatal(err)
		}
		all, err := admin.ClusterRoleBindings().List(ctx, metav1.ListOptions{ResourceVersion: cached})
		if err != nil {
			t.Fatal(err)
		}
		if len(roles.Items) == 5 && len(some.Items) == 1 && len(all.Items) == 2 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the watch caches lag by 30 s")
		}
	}
}

func gathers() *rbacv1.AggregationRule {
	return &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"gather": "me"}}}}
}

// TestEscalation: each case writes objects of its own.
func TestEscalation(t *testing.T) {
	t.Parallel()
	config := start(t, All(), controlplane.PartFunc(permissions))
	holdings(t, config)
	create, patch, update := metav1.CreateOptions{}, metav1.PatchOptions{}, metav1.UpdateOptions{}
	type api = rbacclient.RbacV1Interface
	for name, tc := range map[string]struct {
		reason string
		who    string
		groups []string
		do     func(context.Context, api) error
		want   string
	}{
		"role held": {
			reason: "who holds a rule may give it away", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Create(ctx, rolled("held", may("get", "pods")), create)
				return err
			},
		},
		"role not held": {
			reason: "who does not hold it may not", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Create(ctx, rolled("not-held", may("get", "pods", "secrets"), may("list", "secrets")), create)
				return err
			},
			want: `roles.rbac.authorization.k8s.io "not-held" is forbidden: user "writer" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:` +
				"\n" + `{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}; resolution errors: [clusterroles.rbac.authorization.k8s.io "missing" not found]`,
		},
		"role elsewhere": {
			reason: "what is held in a namespace is not held in another", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("other").Create(ctx, rolled("elsewhere", may("get", "pods")), create)
				return err
			},
			want: "is attempting to grant RBAC permissions not currently held",
		},
		"empty role": {
			reason: "nothing is given away", who: "nobody", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Create(ctx, rolled("empty"), create)
				return err
			},
		},
		"dry run": {
			reason: "a dry run says what would be", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Create(ctx, rolled("dry", may("get", "secrets")), metav1.CreateOptions{DryRun: list(metav1.DryRunAll)})
				return err
			},
			want: `roles.rbac.authorization.k8s.io "dry" is forbidden`,
		},
		"apply": {
			reason: "apply creates as well", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Patch(ctx, "applied", types.ApplyPatchType, []byte(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"applied"},`+
					`"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`), metav1.PatchOptions{FieldManager: "me"})
				return err
			},
			want: `roles.rbac.authorization.k8s.io "applied" is forbidden`,
		},
		"patch": {
			reason: "an update gives away too", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Patch(ctx, "more", types.JSONPatchType, []byte(`[{"op":"add","path":"/rules/0/verbs/-","value":"list"}]`), patch)
				return err
			},
			want: `{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`,
		},
		"patch away": {
			reason: "what remains is held", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Patch(ctx, "fewer", types.MergePatchType, []byte(`{"rules":[]}`), patch)
				return err
			},
		},
		"labels": {
			reason: "a label may have a role gathered", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Patch(ctx, "labels", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), patch)
				return err
			},
			want: "not currently held",
		},
		"finalizers": {
			reason: "collectors may work", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Patch(ctx, "finalizers", types.MergePatchType, []byte(`{"metadata":{"finalizers":["example.com/a"]}}`), patch)
				return err
			},
		},
		"delete": {
			reason: "a role that goes gives nothing away", who: "writer", do: func(ctx context.Context, c api) error {
				return c.Roles("held").Delete(ctx, "deleted", metav1.DeleteOptions{})
			},
		},
		"escalate": {
			reason: "the permission is for that", who: "escalate", do: func(ctx context.Context, c api) error {
				_, err := c.Roles("held").Create(ctx, rolled("escalated", may("*", "*")), create)
				return err
			},
		},
		"escalate one": {
			reason: "the permission is for one name", who: "escalate-one", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoles().Update(ctx, clusterRolled("one", may("get", "secrets")), update)
				return err
			},
		},
		"escalate another": {
			reason: "the permission is for one name, which the path of a create does not have", who: "escalate-one", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoles().Create(ctx, clusterRolled("one", may("get", "secrets")), create)
				return err
			},
			want: "not currently held", // asked before it is found to exist
		},
		"masters": {
			reason: "members may do everything", who: "master", groups: list("system:masters"), do: func(ctx context.Context, c api) error {
				r := clusterRolled("masters", may("*", "*"))
				r.AggregationRule = gathers()
				_, err := c.ClusterRoles().Create(ctx, r, create)
				return err
			},
		},
		"cluster role": {
			reason: "what is held in a namespace is not held in all", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoles().Create(ctx, clusterRolled("not-held", may("get", "pods")), create)
				return err
			},
			want: `clusterroles.rbac.authorization.k8s.io "not-held" is forbidden`,
		},
		"cluster role held": {
			reason: "who holds everything may give it away", who: "chief", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoles().Create(ctx, clusterRolled("chiefs", everything()...), create)
				return err
			},
		},
		"aggregation": {
			reason: "who gathers may gather anything", who: "writer", do: func(ctx context.Context, c api) error {
				r := clusterRolled("aggregation")
				r.AggregationRule = gathers()
				_, err := c.ClusterRoles().Create(ctx, r, create)
				return err
			},
			want: `clusterroles.rbac.authorization.k8s.io "aggregation" is forbidden: must have cluster-admin privileges to use the aggregationRule`,
		},
		"aggregation undone": {
			reason: "who stops it may keep what was gathered", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoles().Patch(ctx, "gathering", types.MergePatchType, []byte(`{"aggregationRule":null}`), patch)
				return err
			},
			want: `must have cluster-admin privileges to use the aggregationRule`,
		},
		"aggregation by chief": {
			reason: "who holds everything may gather", who: "chief", do: func(ctx context.Context, c api) error {
				r := clusterRolled("aggregation-by-chief")
				r.AggregationRule = gathers()
				_, err := c.ClusterRoles().Create(ctx, r, create)
				return err
			},
		},
		"binding held": {
			reason: "who holds a role may bind it", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.RoleBindings("held").Create(ctx, bound("held", "pods", "ann"), create)
				return err
			},
		},
		"binding not held": {
			reason: "who does not may not", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.RoleBindings("held").Create(ctx, bound("not-held", "secrets", "ann"), create)
				return err
			},
			want: `rolebindings.rbac.authorization.k8s.io "not-held" is forbidden: user "writer" (groups=["system:authenticated"]) is attempting to grant`,
		},
		"binding of a role": {
			reason: "roles of the namespace are bound as cluster roles are", who: "writer", do: func(ctx context.Context, c api) error {
				b := bound("role", "labels", "ann")
				b.RoleRef.Kind = "Role"
				_, err := c.RoleBindings("held").Create(ctx, b, create)
				return err
			},
			want: `{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`,
		},
		"binding missing": {
			reason: "nobody knows what it will give", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.RoleBindings("held").Create(ctx, bound("missing", "missing", "ann"), create)
				return err
			},
			want: `clusterroles.rbac.authorization.k8s.io "missing" not found`,
		},
		"bind": {
			reason: "the permission is for that", who: "bind", do: func(ctx context.Context, c api) error {
				if _, err := c.RoleBindings("held").Create(ctx, bound("bind", "everything", "ann"), create); err != nil {
					return err
				}
				_, err := c.RoleBindings("held").Create(ctx, bound("bind-missing", "missing", "ann"), create)
				return err
			},
		},
		"bind elsewhere": {
			reason: "the permission is for a namespace", who: "bind", do: func(ctx context.Context, c api) error {
				_, err := c.RoleBindings("other").Create(ctx, bound("bind", "secrets", "ann"), create)
				return err
			},
			want: `not currently held`,
		},
		"new subjects": {
			reason: "an update gives away too", who: "nobody", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoleBindings().Patch(ctx, "chief", types.MergePatchType, []byte(`{"subjects":[{"kind":"User","name":"nobody"}]}`), patch)
				return err
			},
			want: `clusterrolebindings.rbac.authorization.k8s.io "chief" is forbidden`,
		},
		"cluster binding": {
			reason: "what is held in a namespace is not held in all", who: "writer", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoleBindings().Create(ctx, clusterBound("pods", "pods", "ann"), create)
				return err
			},
			want: `clusterrolebindings.rbac.authorization.k8s.io "pods" is forbidden`,
		},
		"cluster binding held": {
			reason: "who holds everything may give it away", who: "chief", do: func(ctx context.Context, c api) error {
				_, err := c.ClusterRoleBindings().Create(ctx, clusterBound("everything", "everything", "ann"), create)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.do(t.Context(), client(t, config, tc.who, tc.groups...))
			if tc.want == "" {
				if err != nil {
					t.Errorf("%s: %v", tc.reason, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}

// TestEscalationOnePart: a part alone guards what it serves, and what nobody
// serves gives nobody anything.
func TestEscalationOnePart(t *testing.T) {
	t.Parallel()
	config := start(t, Roles{}, controlplane.PartFunc(permissions))
	for who, want := range map[string]string{"": "", "escalate": "", "writer": `roles.rbac.authorization.k8s.io "a" is forbidden`} {
		_, err := client(t, config, who).Roles("held").Create(t.Context(), rolled("a", may("get", "pods")),
			metav1.CreateOptions{DryRun: list(metav1.DryRunAll)})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", who, err, want)
		}
	}
}
