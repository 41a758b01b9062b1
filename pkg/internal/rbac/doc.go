// Package rbac decides requests by the roles and bindings of
// rbac.authorization.k8s.io/v1, as Kubernetes 1.37 does.
//
// It holds the rules of the matter and nothing else: it serves no API, writes
// no object and starts no goroutine. What it needs to read comes through a
// Reader.
//
//   - Authorizer answers requests (Authorize), lists what a user may do
//     (RulesFor) and says what somebody would give away without holding it
//     (Confirm).
//   - Aggregate makes the rules of an aggregated ClusterRole.
//   - Defaults are the roles and bindings every plane starts with.
//
// Which rules cover which, and how a stored role or binding is brought up to a
// default one, is in k8s.io/component-helpers/auth/rbac.
//
// Rules only ever allow. Who is allowed by no rule is not denied either:
// another authorizer may be asked.
package rbac
