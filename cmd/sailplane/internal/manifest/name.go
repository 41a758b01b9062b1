package manifest

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/served"
)

// fileOf is the path of an object below a directory, with slashes:
// core/secrets/garden/keys.yaml, rbac.authorization.k8s.io/clusterroles/a%3Ab.yaml.
func fileOf(r served.Resource, u *unstructured.Unstructured) string {
	return path.Join(cmp.Or(r.Group, "core"), r.Resource, u.GetNamespace(), fileName(u.GetName())+".yaml")
}

// maxFileName leaves room for ".yaml" in the 255 bytes that file systems allow.
const maxFileName = 250

// fileName is a name that every file system can have: capital letters, of which
// some make no difference, and everything unusual is written as %XX. The names of
// objects never contain a percent sign. One that gets too long ends in a hash.
func fileName(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.'
		if plain && (i > 0 || c != '.' && !isDevice(name)) {
			b.WriteByte(c)
			continue
		}
		fmt.Fprintf(&b, "%%%02X", c)
	}
	if b.Len() <= maxFileName {
		return b.String()
	}
	hash := fmt.Sprintf("%%-%.16x", sha256.Sum256([]byte(name)))
	return b.String()[:maxFileName-len(hash)] + hash
}

// isDevice tells whether Windows has a device of this name, with whatever extension.
// https://learn.microsoft.com/windows/win32/fileio/naming-a-file
func isDevice(name string) bool {
	first, _, _ := strings.Cut(name, ".")
	if len(first) == 4 && (strings.HasPrefix(first, "com") || strings.HasPrefix(first, "lpt")) {
		return first[3] >= '0' && first[3] <= '9'
	}
	return slices.Contains([]string{"con", "prn", "aux", "nul"}, first)
}
