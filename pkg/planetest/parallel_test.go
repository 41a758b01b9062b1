package planetest_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// TestManyAtOnce: 50 planes run in a process at the same time, each with a CRD and
// objects of its own, and none leaves a goroutine. Tests in parallel would be as
// many as there are processors. It is not parallel itself: what takes milliseconds
// in other tests would take as long as all of this.
func TestManyAtOnce(t *testing.T) {
	const planes = 50
	var starting sync.WaitGroup
	running := make([]*planetest.Plane, planes)
	for i := range planes {
		starting.Go(func() {
			running[i] = planetest.Options{NoDefaults: true}.Start(t, few()).Within(2 * time.Minute) // all want the processors
			running[i].Apply(t, planetest.YAML(widget), planetest.YAML(fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: x%d}}", i)))
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	for i, plane := range running {
		want := []string{fmt.Sprintf("ConfigMap default/x%d (v1)", i), "Widget default/lever (example.com/v1)"}
		if got := plane.Content(t).Names(); !slices.Equal(got, want) {
			t.Errorf("plane %d has %q, want %q", i, got, want)
		}
	}
}
