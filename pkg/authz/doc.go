// Package authz has the parts that decide what a known user may do:
//
//   - [RBAC]: what roles and their bindings allow
//   - [Func]: what a Go function says
//   - [Webhook]: what another server says
//   - [Config]: RBAC and webhooks, as in a file that may change
//   - [Groups]: members of some groups may do everything
//
// Several may be picked. They are asked in the order of the parts, after the
// rule that group system:masters may do everything: the first that allows or
// denies decides, and a request that no part has an opinion about is refused. Put
// parts that may deny before those that allow.
//
// All of them know the field and label selectors of a list, watch or delete of
// collections (KEP 4601), and of a review: [Func] and [Webhook] may let users
// list only their own objects. RBAC has no rules about selectors.
//
// [FilteredLists] lets users who may not list a resource list the objects that
// they may get.
//
// There is no ABAC, no Node and no AlwaysAllow authorizer.
package authz
