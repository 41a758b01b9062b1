package preset_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/preset"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestStandard: the bundle lacks nothing that its parts need.
func TestStandard(t *testing.T) {
	if _, err := controlplane.New("standard").Storage(memory.Store{}).With(preset.Standard()).Build(); err != nil {
		t.Error(err)
	}
}

// TestCustom: what is chosen reaches the parts, and nothing else changes.
func TestCustom(t *testing.T) {
	deny := admit.PrivateNetworks()
	var denied, different []string
	standard := preset.Custom{}.Parts()
	for i, p := range (preset.Custom{WebhookDeny: deny}).Parts() {
		switch w := p.(type) {
		case admit.MutatingWebhooks:
			if slices.Equal(w.Deny, deny) {
				denied = append(denied, w.PartName())
			}
		case admit.ValidatingWebhooks:
			if slices.Equal(w.Deny, deny) {
				denied = append(denied, w.PartName())
			}
		default:
			if reflect.TypeOf(p) != reflect.TypeOf(standard[i]) {
				different = append(different, reflect.TypeOf(p).String())
			}
		}
	}
	if want := []string{"admit.MutatingWebhooks", "admit.ValidatingWebhooks"}; !slices.Equal(denied, want) || different != nil {
		t.Errorf("the list is given to %v: want %v; other parts that differ: %v", denied, want, different)
	}
}
