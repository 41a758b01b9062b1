package fairness_test

import (
	"context"
	"errors"
	"testing"

	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

var errBroken = errors.New("broken")

// TestBroken has servers that do not start, whose flow control is to end all the
// same: what is left of it fails the package's tests.
func TestBroken(t *testing.T) {
	t.Parallel()
	link := func(*controlplane.Plane, genericapiserver.DelegationTarget) (*controlplane.Link, error) {
		return nil, errBroken
	}
	cases := map[string]struct {
		reason string
		part   controlplane.PartFunc
	}{
		"below": {"no server was made", func(p *controlplane.Plan) error { p.Below("broken", link); return nil }},
		"above": {"some servers were made", func(p *controlplane.Plan) error { p.Above("broken", link); return nil }},
		"work":  {"the plane runs", func(p *controlplane.Plan) error { p.Work(controlplane.Work{Name: "broken", Start: breaks}); return nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := builder(kube.FlowControl(), tc.part, fairness.PriorityAndFairness{}).Run(t.Context())
			if !errors.Is(err, errBroken) {
				t.Errorf("%s: got error %v, want %v", tc.reason, err, errBroken)
			}
		})
	}
}

func breaks(context.Context, *controlplane.Plane) error { return errBroken }
