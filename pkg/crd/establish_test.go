package crd

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKeepEstablished(t *testing.T) {
	t.Parallel()
	long, recent := metav1.NewTime(time.Unix(1000, 0)), metav1.NewTime(time.Unix(2000, 0))
	is := func(want metav1.Time) func(metav1.Time) bool {
		return func(at metav1.Time) bool { return at.Equal(&want) }
	}
	no := apiextensions.CustomResourceDefinitionCondition{Status: apiextensions.ConditionFalse, LastTransitionTime: long}
	yes := apiextensions.CustomResourceDefinitionCondition{Status: apiextensions.ConditionTrue, LastTransitionTime: long}
	assumed := apiextensions.CustomResourceDefinitionCondition{Status: apiextensions.ConditionTrue}
	written := apiextensions.CustomResourceDefinitionCondition{Status: apiextensions.ConditionTrue, LastTransitionTime: recent}
	cases := map[string]struct {
		reason      string
		before, now apiextensions.CustomResourceDefinitionCondition
		deleted     bool
		want        apiextensions.ConditionStatus
		at          func(metav1.Time) bool
	}{
		"assumed": {
			reason: "a controller writes what it has in memory", before: no, now: assumed,
			want: apiextensions.ConditionFalse, at: is(long),
		},
		"usable": {reason: "it is written when it is true", before: no, now: written, want: apiextensions.ConditionTrue, at: is(recent)},
		"still true": {
			reason: "nothing changed, whatever the time in memory", before: yes, now: written,
			want: apiextensions.ConditionTrue, at: is(long),
		},
		"deleted": {
			reason: "there may be objects, which are deleted where the CRD was established", before: no, now: assumed, deleted: true,
			want: apiextensions.ConditionTrue, at: func(at metav1.Time) bool { return !at.IsZero() },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			with := func(c apiextensions.CustomResourceDefinitionCondition) *apiextensions.CustomResourceDefinition {
				c.Type = apiextensions.Established
				d := &apiextensions.CustomResourceDefinition{}
				d.Status.Conditions = []apiextensions.CustomResourceDefinitionCondition{c}
				return d
			}
			got, old := with(tc.now), with(tc.before)
			if tc.deleted {
				got.DeletionTimestamp = &recent
			}
			keepEstablished(got, old)
			c := apiextensions.FindCRDCondition(got, apiextensions.Established)
			if c.Status != tc.want || !tc.at(c.LastTransitionTime) {
				t.Errorf("%s: got %v", tc.reason, cmp.Diff(with(tc.now), got))
			}
		})
	}
}
