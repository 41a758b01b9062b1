package resource_test

import (
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/group"
	"github.com/sailplane-dev/sailplane/pkg/resource"
	"github.com/sailplane-dev/sailplane/pkg/resource/resourcetest/fruit"
)

func TestSchemaOptionsAreChecked(t *testing.T) {
	t.Parallel()
	type colour string
	def := resource.Of[fruit.Apple, fruit.AppleList]("apples",
		resource.Describe[fruit.AppleSpec]("Variety", "The cultivar."),
		resource.ListType[fruit.AppleSpec]("Grafts", "map", "name"),
		resource.Enum[colour]("red"))
	if got := len(def.Schema()); got != 3 {
		t.Fatalf("Schema() has %d options, want 3", got)
	}
	_, err := group.New(fruit.GroupVersion(), nil, nil, def).API().Definitions()
	if err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("an enum of a type that no object has: %v, want an error that names it", err)
	}
}
