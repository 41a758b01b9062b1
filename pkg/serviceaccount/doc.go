// Package serviceaccount lets service accounts log in: [Tokens] signs their
// tokens and recognises callers by them.
//
//	kubectl create token builder --namespace ci
//
// A token says whose it is, for whom, until when, and optionally to which Pod,
// Secret or Node it is bound. It is never stored: it ends with its time, its
// account or the object it is bound to.
// https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#bound-service-account-tokens
package serviceaccount
