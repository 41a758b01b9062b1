package rules

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// TestOptions: a rule whose option is not known refuses every object.
func TestOptions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*/zz_generated.validations.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no rules: %v", err)
	}
	asked, options := map[string]bool{}, Options()
	option := regexp.MustCompile(`"([A-Z]\w+)", (?:true|false)`)
	for _, file := range files {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range option.FindAllSubmatch(code, -1) {
			asked[string(found[1])] = true
		}
	}
	for name := range asked {
		if _, ok := options[name]; !ok {
			t.Errorf("option %s is not known", name)
		}
	}
	for name := range options {
		if !asked[name] {
			t.Errorf("no rule asks for option %s", name)
		}
	}
}
