package config_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
)

// TestUpgrading: the page about upgrading has the names that flags had, and no others.
func TestUpgrading(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/upgrading.md")
	if err != nil {
		t.Fatal(err)
	}
	_, flags, _ := strings.Cut(string(page), "\n## Flags\n")
	flags, _, _ = strings.Cut(flags, "\n## ")
	renamed := 0
	for _, f := range config.Flags() {
		if f.Old == "" {
			continue
		}
		renamed++
		if row := fmt.Sprintf("| `--%s` | `--%s` |", f.Old, f.Name); !strings.Contains(flags, row) {
			t.Errorf("docs/upgrading.md lacks %s", row)
		}
	}
	if rows := strings.Count(flags, "\n| `--"); rows != renamed || renamed == 0 {
		t.Errorf("the table has %d rows, and %d flags have an old name", rows, renamed)
	}
}
