package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// differences are the paths of the fields that differ: "spec.replicas",
// `data["tls.crt"]`. Values are not in them: they may be secret.
func differences(path string, a, b any) []string {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			break
		}
		var all []string
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			x, inA := a[key]
			y, inB := b[key]
			switch {
			case inA && inB:
				all = append(all, differences(join(path, key), x, y)...)
			default:
				all = append(all, join(path, key))
			}
		}
		return all
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		var all []string
		for i := range a {
			all = append(all, differences(fmt.Sprintf("%s[%d]", path, i), a[i], b[i])...)
		}
		return all
	}
	return []string{path}
}

// join adds a key to a path.
func join(path, key string) string {
	switch {
	case strings.ContainsAny(key, `."/[] `) || key == "":
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}

// toldDifferences is how many paths a line has.
const toldDifferences = 5

// listed is a list of paths that fits in a line.
func listed(paths []string) string {
	if more := len(paths) - toldDifferences; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(paths[:toldDifferences], ", "), more)
	}
	return strings.Join(paths, ", ")
}
