package apitest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/apis"

	"github.com/sailplane-dev/sailplane/pkg/apis/apitest"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit/v1alpha1"
)

// recorder is a testing.TB that keeps the errors.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func fruits(toHub func(*v1alpha1.Apple, *fruit.Apple) error) *apis.Group {
	return apis.NewGroup(fruit.GroupVersion(), nil, nil,
		apis.Resource[fruit.Apple, fruit.AppleList]("apples",
			apis.Version[v1alpha1.Apple, v1alpha1.AppleList]("v1alpha1", toHub, v1alpha1.FromHub)))
}

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	apitest.RoundTrip(t, fruits(v1alpha1.ToHub))
}

func TestRoundTripFindsLoss(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		toHub  func(*v1alpha1.Apple, *fruit.Apple) error
		errors int
		want   string
	}{
		"forgotten field": {
			reason: "both ways lose the grafts",
			toHub: func(in *v1alpha1.Apple, out *fruit.Apple) error {
				err := v1alpha1.ToHub(in, out)
				out.Spec.Grafts = nil
				return err
			},
			errors: 2, want: "Grafts:",
		},
		"error": {
			reason: "a conversion must take every object",
			toHub:  func(*v1alpha1.Apple, *fruit.Apple) error { return fmt.Errorf("rotten") },
			errors: 2, want: "rotten",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}
			apitest.RoundTrip(r, fruits(c.toHub))
			if len(r.errors) != c.errors || !strings.Contains(strings.Join(r.errors, "\n"), c.want) {
				t.Errorf("%s: want %d errors about %q, got %q", c.reason, c.errors, c.want, r.errors)
			}
		})
	}
}
