// Package rbac decides requests by the roles and bindings of
// rbac.authorization.k8s.io/v1, as Kubernetes 1.37 does.
//
// It makes decisions and nothing else: it serves no API, writes no object and
// starts no goroutine. It reads through a Reader.
//
//   - Authorizer answers requests (Authorize), lists what a user may do
//     (RulesFor) and says what somebody would give away without holding it
//     (Confirm).
//   - Aggregate makes the rules of an aggregated ClusterRole.
//   - Defaults are the roles and bindings every plane starts with.
//
// k8s.io/component-helpers/auth/rbac decides which rules cover which, and how a
// stored role or binding is brought up to a default one.
//
// Rules only allow. A request that no rule allows is not denied either: another
// authorizer may decide.
package rbac
