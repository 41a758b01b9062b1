package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	autoscalingrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/autoscaling"
)

func autoscaling() apiGroup {
	definitions, rules := autoscalingDefinitions, autoscalingrules.RegisterValidations
	return apiGroup{autoscalingv2.SchemeGroupVersion, definitions, rules, nil, []func() *apis.Definition{autoscalers}}
}

func autoscalers() *apis.Definition {
	return apis.Resource[autoscalingv2.HorizontalPodAutoscaler, autoscalingv2.HorizontalPodAutoscalerList]("horizontalpodautoscalers",
		apis.ShortNames("hpa"), apis.Categories("all"), apis.StatusAndMetadata(),
		apis.RuleOptions(map[string]bool{"HPAScaleToZero": true}),
		apis.Default(defaultAutoscaler),
		apis.Validate(validateAutoscaler),
		table(autoscalerRow, "Reference", "Targets", "MinPods", "MaxPods#", "Replicas#"),
	)
}

func defaultAutoscaler(h *autoscalingv2.HorizontalPodAutoscaler) {
	set(&h.Spec.MinReplicas, 1)
	if len(h.Spec.Metrics) == 0 {
		h.Spec.Metrics = []autoscalingv2.MetricSpec{{
			Type: autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{
				Name: corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{
					Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](80),
				},
			},
		}}
	}
	if h.Spec.Behavior == nil {
		return
	}
	percent := autoscalingv2.HPAScalingPolicy{Type: autoscalingv2.PercentScalingPolicy, Value: 100, PeriodSeconds: 15}
	up := defaultRules(&h.Spec.Behavior.ScaleUp)
	set(&up.StabilizationWindowSeconds, 0)
	if up.Policies == nil {
		up.Policies = []autoscalingv2.HPAScalingPolicy{
			{Type: autoscalingv2.PodsScalingPolicy, Value: 4, PeriodSeconds: 15}, percent,
		}
	}
	down := defaultRules(&h.Spec.Behavior.ScaleDown)
	if down.Policies == nil {
		down.Policies = []autoscalingv2.HPAScalingPolicy{percent}
	}
}

func defaultRules(rules **autoscalingv2.HPAScalingRules) *autoscalingv2.HPAScalingRules {
	set(rules, autoscalingv2.HPAScalingRules{})
	set(&(*rules).SelectPolicy, autoscalingv2.MaxChangePolicySelect)
	return *rules
}

func validateAutoscaler(_ context.Context, h *autoscalingv2.HorizontalPodAutoscaler) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	least := value(h.Spec.MinReplicas)
	if h.Spec.MaxReplicas < 1 {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), h.Spec.MaxReplicas, "must be greater than 0"))
	}
	if h.Spec.MaxReplicas < least {
		errs = append(errs, field.Invalid(spec.Child("maxReplicas"), h.Spec.MaxReplicas, "must be greater than or equal to `minReplicas`"))
	}
	for i, m := range h.Spec.Metrics {
		errs = append(errs, check.OneOf(spec.Child("metrics").Index(i).Child("type"), m.Type,
			autoscalingv2.ContainerResourceMetricSourceType, autoscalingv2.ExternalMetricSourceType, autoscalingv2.ObjectMetricSourceType,
			autoscalingv2.PodsMetricSourceType, autoscalingv2.ResourceMetricSourceType)...)
	}
	// Without pods, no metric of pods tells when there is work again.
	if h.Spec.MinReplicas != nil && least == 0 && !slices.ContainsFunc(h.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	}) {
		errs = append(errs, field.Forbidden(spec.Child("metrics"),
			"must specify at least one Object or External metric to support scaling to zero replicas"))
	}
	return errs
}

func autoscalerRow(h *autoscalingv2.HorizontalPodAutoscaler) []any {
	least := "<unset>"
	if h.Spec.MinReplicas != nil {
		least = fmt.Sprint(*h.Spec.MinReplicas)
	}
	return []any{
		h.Spec.ScaleTargetRef.Kind + "/" + h.Spec.ScaleTargetRef.Name, metricsText(h.Spec.Metrics, h.Status.CurrentMetrics),
		least, h.Spec.MaxReplicas, h.Status.CurrentReplicas,
	}
}

// metricsText is the first two metrics, current and target.
func metricsText(specs []autoscalingv2.MetricSpec, statuses []autoscalingv2.MetricStatus) string {
	if len(specs) == 0 {
		return none
	}
	const most = 2
	var all []string
	for i, spec := range specs[:min(most, len(specs))] {
		var status autoscalingv2.MetricStatus
		if i < len(statuses) {
			status = statuses[i]
		}
		all = append(all, metricText(&spec, &status))
	}
	text := strings.Join(all, ", ")
	if more := len(specs) - most; more > 0 {
		text += " + " + plural(more)
	}
	return text
}

func metricText(m *autoscalingv2.MetricSpec, now *autoscalingv2.MetricStatus) string {
	switch {
	case m.External != nil:
		return targetText(m.External.Target, value(now.External).Current)
	case m.Pods != nil:
		return targetText(m.Pods.Target, value(now.Pods).Current)
	case m.Object != nil:
		return targetText(m.Object.Target, value(now.Object).Current)
	case m.Resource != nil:
		return string(m.Resource.Name) + ": " + targetText(m.Resource.Target, value(now.Resource).Current)
	case m.ContainerResource != nil:
		return string(m.ContainerResource.Name) + ": " + targetText(m.ContainerResource.Target, value(now.ContainerResource).Current)
	}
	return "<unknown type>"
}

// targetText is a metric as current/target.
func targetText(target autoscalingv2.MetricTarget, now autoscalingv2.MetricValueStatus) string {
	is := func(q *resource.Quantity) string {
		if q == nil {
			return unknown
		}
		return q.String()
	}
	switch {
	case target.AverageUtilization != nil:
		current := unknown
		if now.AverageUtilization != nil {
			current = fmt.Sprintf("%d%%", *now.AverageUtilization)
		}
		return fmt.Sprintf("%s/%d%%", current, *target.AverageUtilization)
	case target.AverageValue != nil:
		return fmt.Sprintf("%s/%s (avg)", is(now.AverageValue), target.AverageValue)
	}
	return fmt.Sprintf("%s/%s", is(now.Value), is(target.Value))
}
