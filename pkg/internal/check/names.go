package check

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
)

// systemPrefix begins the names of users and groups that Kubernetes keeps for itself.
const systemPrefix = "system:"

// AllowedName tells whether a user or a group has one of the names that patterns allow. A
// pattern is a name, or "*" behind the beginning of one. Names that begin with "system:"
// need a pattern that does, too, and system:masters, which may do everything, needs its name.
func AllowedName(name string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if p == name {
			return true
		}
		beginning, open := strings.CutSuffix(p, "*")
		if !open || !strings.HasPrefix(name, beginning) || name == user.SystemPrivilegedGroup {
			return false
		}
		return strings.HasPrefix(beginning, systemPrefix) || !strings.HasPrefix(name, systemPrefix)
	})
}

// Patterns tells what is wrong with the patterns of a field.
func Patterns(field string, patterns []string) error {
	for i, p := range patterns {
		if p == "" || strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			return fmt.Errorf(`field %s[%d]: %q: want a name, or the beginning of one and "*"`, field, i, p)
		}
	}
	return nil
}
