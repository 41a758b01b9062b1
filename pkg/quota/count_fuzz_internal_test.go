package quota

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzCounted: a name of a quota is about one resource or none, and that of
// "count/..." says which.
func FuzzCounted(f *testing.F) {
	for _, seed := range []string{
		"", "configmaps", "count/configmaps", "count/gadgets.example.com", "count/", "count/.", "count/a.", "count/.a", "count/count/a", "count/a/b", "Count/a",
		"requests.storage", "cpu", "services.nodeports", "count/configmaps.", "count/\x00", "count/a.b.c.d",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		gr, ok := counted(corev1.ResourceName(name))
		rest, prefixed := strings.CutPrefix(name, "count/")
		switch {
		case prefixed && !ok:
			t.Errorf("%q counts nothing", name)
		case prefixed && strings.TrimSuffix(gr.Resource+"."+gr.Group, ".") != strings.TrimSuffix(rest, "."):
			t.Errorf("%q counts %s", name, gr)
		case !prefixed && ok && (gr.Group != "" || gr.Resource != name):
			t.Errorf("%q counts %s", name, gr)
		}
	})
}
