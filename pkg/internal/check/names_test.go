package check_test

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func TestAllowedName(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason   string
		name     string
		patterns []string
		want     bool
	}{
		"same":         {"a name allows itself", "ann", []string{"bob", "ann"}, true},
		"other":        {"and no other", "anna", []string{"ann"}, false},
		"beginning":    {"a pattern allows what begins like it", "robot-1", []string{"robot-*"}, true},
		"middle":       {"and nothing else", "a-robot-1", []string{"robot-*"}, false},
		"all":          {"a star allows all", "ann", []string{"*"}, true},
		"none":         {"without patterns nothing is allowed", "ann", nil, false},
		"empty":        {"a star allows no name, too", "", []string{"*"}, true},
		"system":       {"but no names of the system", "system:nodes", []string{"*"}, false},
		"part of it":   {"nor by a part of the prefix", "system:nodes", []string{"sys*"}, false},
		"system, said": {"unless the pattern says so", "system:nodes", []string{"system:*"}, true},
		"masters":      {"the group that may do everything", "system:masters", []string{"*", "system:*", "system:m*"}, false},
		"masters said": {"is allowed by its name alone", "system:masters", []string{"system:masters"}, true},
	} {
		if got := check.AllowedName(tc.name, tc.patterns); got != tc.want {
			t.Errorf("%s: %s: %v, want %v", name, tc.reason, got, tc.want)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	for pattern, good := range map[string]bool{"*": true, "a*": true, "a": true, "": false, "*a": false, "a*b*": false} {
		if err := check.Patterns("Users", []string{"a", pattern}); (err == nil) != good {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
