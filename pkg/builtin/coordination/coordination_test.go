package coordination

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		spec   coordinationv1.LeaseSpec
		want   string
	}{
		"empty":       {reason: "every field is optional"},
		"good":        {reason: "a lease as leader election writes it", spec: coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a"), LeaseDurationSeconds: ptr.To[int32](15), LeaseTransitions: ptr.To[int32](0)}},
		"duration":    {reason: "no lease lasts no time", spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: ptr.To[int32](0)}, want: "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"},
		"transitions": {reason: "they are counted up", spec: coordinationv1.LeaseSpec{LeaseTransitions: ptr.To[int32](-1)}, want: "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := ""
			if err := validate(t.Context(), &coordinationv1.Lease{Spec: tc.spec}).ToAggregate(); err != nil {
				got = err.Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCoordinatedElectionIsOff(t *testing.T) {
	t.Parallel()
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("a"), PreferredHolder: ptr.To("b"), Strategy: ptr.To(coordinationv1.OldestEmulationVersion),
	}}
	dropCoordinated(l)
	want := coordinationv1.LeaseSpec{HolderIdentity: ptr.To("a")}
	if diff := cmp.Diff(want, l.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
