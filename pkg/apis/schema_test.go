package apis_test

import (
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/apis"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

func TestSchemaOptionsAreChecked(t *testing.T) {
	t.Parallel()
	type colour string
	def := apis.Resource[fruit.Apple, fruit.AppleList]("apples",
		apis.Describe[fruit.AppleSpec]("Variety", "The cultivar."),
		apis.ListType[fruit.AppleSpec]("Grafts", "map", "name"),
		apis.Enum[colour]("red"))
	if got := len(def.Schema()); got != 3 {
		t.Fatalf("Schema() has %d options, want 3", got)
	}
	_, err := apis.NewGroup(fruit.GroupVersion(), nil, nil, def).API().Definitions()
	if err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("an enum of a type that no object has: %v, want an error that names it", err)
	}
}
