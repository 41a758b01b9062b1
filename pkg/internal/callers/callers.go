// Package callers tells who counts as one where users share something: a user, or the
// service accounts of a namespace together, since who may make one may make many.
package callers

import (
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// Of returns who a user counts as: the group of the service accounts of its namespace
// ("system:serviceaccounts:shop") for a service account, itself for any other user.
func Of(user string) string {
	if namespace := Namespace(user); namespace != "" {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return user
}

// Namespace returns that of a service account ("system:serviceaccount:shop:robot"), and
// nothing for any other user.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#service-account-tokens
func Namespace(user string) string {
	account, is := strings.CutPrefix(user, serviceaccount.ServiceAccountUsernamePrefix)
	namespace, name, named := strings.Cut(account, serviceaccount.ServiceAccountUsernameSeparator)
	if !is || !named || name == "" {
		return ""
	}
	return namespace
}
