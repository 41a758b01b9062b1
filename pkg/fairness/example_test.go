package fairness_test

import (
	"fmt"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// A server for many users: requests queue by rules of the API, and no user may
// take more than a fixed share.
func ExampleLimits() {
	_, err := controlplane.New("example").Storage(memory.Store{}).With(
		core.Namespaces{}, core.ConfigMaps{},
		kube.FlowControl(), fairness.PriorityAndFairness{},
		fairness.Limits{RequestsPerSecond: 50, Burst: 100, ObjectBytes: 256 << 10, ObjectsPerResource: 1000, WatchesPerUser: 100},
	).Build()
	fmt.Println(err)
	// Output: <nil>
}
