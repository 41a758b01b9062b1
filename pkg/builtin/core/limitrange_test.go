package core

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestDefaultLimits(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		item, want corev1.LimitRangeItem
	}{
		"FromMaxAndMin": {
			reason: "limit from the maximum, request from the limit",
			item:   corev1.LimitRangeItem{Type: "Container", Max: list("cpu", "2"), Min: list("cpu", "1", "memory", "1Mi")},
			want: corev1.LimitRangeItem{
				Type: "Container", Max: list("cpu", "2"), Min: list("cpu", "1", "memory", "1Mi"),
				Default: list("cpu", "2"), DefaultRequest: list("cpu", "2", "memory", "1Mi"),
			},
		},
		"GivenStays": {
			reason: "what is given is not changed",
			item:   corev1.LimitRangeItem{Type: "Container", Max: list("cpu", "2"), Default: list("cpu", "1"), DefaultRequest: list("cpu", "500m")},
			want:   corev1.LimitRangeItem{Type: "Container", Max: list("cpu", "2"), Default: list("cpu", "1"), DefaultRequest: list("cpu", "500m")},
		},
		"Pod": {
			reason: "only containers have defaults; quantities are rounded up",
			item:   corev1.LimitRangeItem{Type: "Pod", Max: list("cpu", "1u")},
			want:   corev1.LimitRangeItem{Type: "Pod", Max: list("cpu", "1m")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defaultLimits(&tc.item)
			if diff := cmp.Diff(tc.want, tc.item); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestValidateLimitRange(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		limits []corev1.LimitRangeItem
		want   []string
	}{
		"Valid": {
			reason: "each type with what it takes",
			limits: []corev1.LimitRangeItem{
				{Type: "Pod", Max: list("cpu", "2"), Min: list("cpu", "1"), MaxLimitRequestRatio: list("cpu", "2")},
				{Type: "Container", Min: list("memory", "1"), DefaultRequest: list("memory", "2"), Default: list("memory", "3"), Max: list("memory", "4")},
				{Type: "PersistentVolumeClaim", Min: list("storage", "1Gi")},
				{Type: "example.org/Thing", Max: list("example.org/x", "1")},
			},
		},
		"Types": {
			reason: "a type is known or has a domain, and is there once",
			limits: []corev1.LimitRangeItem{{Type: "Thing"}, {Type: "Pod"}, {Type: "Pod"}},
			want: []string{
				`spec.limits[0].type: Invalid value: "Thing": must be a standard limit type or fully qualified`,
				`spec.limits[2].type: Duplicate value: "Pod"`,
			},
		},
		"Names": {
			reason: "containers use cpu and memory, not secrets",
			limits: []corev1.LimitRangeItem{{Type: "Container", Max: list("secrets", "1", "bananas", "1", "x.kubernetes.io/y", "1", "requests.a/b", "1")}},
			want: []string{
				`spec.limits[0].max[bananas]: Invalid value: "bananas": must be a standard resource type or fully qualified`,
				`spec.limits[0].max[bananas]: Invalid value: "bananas": must be a standard resource for containers`,
				`spec.limits[0].max[requests.a/b]: Invalid value: "requests.a/b": doesn't follow extended resource name standard`,
				`spec.limits[0].max[secrets]: Invalid value: "secrets": must be a standard resource for containers`,
			},
		},
		"PodDefaults": {
			reason: "defaults are for containers",
			limits: []corev1.LimitRangeItem{{Type: "Pod", Default: list("cpu", "1"), DefaultRequest: list("cpu", "1")}},
			want: []string{
				"spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
				"spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'",
			},
		},
		"ClaimWithoutBounds": {
			reason: "a claim is limited by its storage",
			limits: []corev1.LimitRangeItem{{Type: "PersistentVolumeClaim", Default: list("storage", "1Gi")}},
			want:   []string{"spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"},
		},
		"MinAboveAll": {
			reason: "min <= defaultRequest, default, max",
			limits: []corev1.LimitRangeItem{{
				Type: "Container", Min: list("cpu", "4"), DefaultRequest: list("cpu", "2"), Default: list("cpu", "3"), Max: list("cpu", "3"),
			}},
			want: []string{
				`spec.limits[0].min[cpu]: Invalid value: "4": min value 4 is greater than max value 3`,
				`spec.limits[0].defaultRequest[cpu]: Invalid value: "2": min value 4 is greater than default request value 2`,
				`spec.limits[0].default[cpu]: Invalid value: "4": min value 4 is greater than default value 3`,
			},
		},
		"RequestAboveAll": {
			reason: "defaultRequest <= default <= max",
			limits: []corev1.LimitRangeItem{{Type: "Container", DefaultRequest: list("cpu", "4"), Default: list("cpu", "3"), Max: list("cpu", "2")}},
			want: []string{
				`spec.limits[0].defaultRequest[cpu]: Invalid value: "4": default request value 4 is greater than max value 2`,
				`spec.limits[0].defaultRequest[cpu]: Invalid value: "4": default request value 4 is greater than default limit value 3`,
				`spec.limits[0].default[cpu]: Invalid value: "2": default value 3 is greater than max value 2`,
			},
		},
		"Ratios": {
			reason: "a ratio is at least one and at most what the bounds allow",
			limits: []corev1.LimitRangeItem{{
				Type: "Pod", Min: list("memory", "1Gi"), Max: list("memory", "2Gi"), MaxLimitRequestRatio: list("cpu", "0.5", "memory", "3"),
			}},
			want: []string{
				`spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1`,
				`spec.limits[0].maxLimitRequestRatio[memory]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000`,
			},
		},
		"Overcommit": {
			reason: "what cannot be shared is requested as it is limited",
			limits: []corev1.LimitRangeItem{{Type: "Container", Default: list("hugepages-2Mi", "4Mi"), DefaultRequest: list("hugepages-2Mi", "2Mi")}},
			want: []string{`spec.limits[0].defaultRequest[hugepages-2Mi]: Invalid value: "2Mi": ` +
				`default value 4Mi must equal to defaultRequest value 2Mi in hugepages-2Mi`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: tc.limits}}
			if diff := cmp.Diff(tc.want, texts(validateLimitRange(t.Context(), l))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
