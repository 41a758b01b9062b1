// Package rbac decides requests by the roles and bindings of
// rbac.authorization.k8s.io/v1, as Kubernetes 1.36 does.
//
// It holds the rules of the matter and nothing else: it serves no API, writes
// no object and starts no goroutine. What it needs to read comes through a
// Reader.
//
//   - Authorizer answers requests (Authorize), lists what a user may do
//     (RulesFor) and finds what somebody would give away without holding it
//     (Uncovered, EscalationError).
//   - Covers compares rules.
//   - Aggregate makes the rules of an aggregated ClusterRole.
//   - Defaults are the roles and bindings every plane starts with, and the
//     Reconcile functions say how to bring a stored one up to them.
//
// Rules only ever allow. Who is allowed by no rule is not denied either:
// another authorizer may be asked.
package rbac
