package preset_test

import (
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/kine/memory"
	"github.com/sailplane-dev/sailplane/pkg/preset"
)

// TestStandard: the bundle lacks nothing that its parts need.
func TestStandard(t *testing.T) {
	if _, err := controlplane.New("standard").Storage(memory.Store{}).With(preset.Standard()).Build(); err != nil {
		t.Error(err)
	}
}
