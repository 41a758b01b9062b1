package kube

import (
	"context"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	devicesrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/devices"
)

func devices() apiGroup {
	definitions, rules := resourceDefinitions, devicesrules.RegisterValidations
	return apiGroup{resourcev1.SchemeGroupVersion, definitions, rules, nil, []func() *apis.Definition{
		deviceClasses, deviceTaintRules, resourceClaims, resourceClaimTemplates, resourceSlices,
	}}
}

func deviceClasses() *apis.Definition {
	return apis.Resource[resourcev1.DeviceClass, resourcev1.DeviceClassList]("deviceclasses",
		apis.ClusterScoped(),
		table(func(*resourcev1.DeviceClass) []any { return nil }),
	)
}

func resourceClaims() *apis.Definition {
	return apis.Resource[resourcev1.ResourceClaim, resourcev1.ResourceClaimList]("resourceclaims",
		apis.Status(), apis.NoGeneration(),
		apis.Default(func(c *resourcev1.ResourceClaim) { defaultDeviceClaim(&c.Spec.Devices) }),
		gated[resourcev1.ResourceClaim](deviceClaimGates()),
		apis.Validate(func(_ context.Context, c *resourcev1.ResourceClaim) field.ErrorList {
			return validateDeviceClaim(&c.Spec.Devices, field.NewPath("spec", "devices"))
		}),
		constant("spec", func(c *resourcev1.ResourceClaim) any { return c.Spec }),
		table(func(c *resourcev1.ResourceClaim) []any {
			var states []string
			if c.DeletionTimestamp != nil {
				states = append(states, "deleted")
			}
			switch {
			case c.Status.Allocation != nil && len(c.Status.ReservedFor) > 0:
				states = append(states, "allocated", "reserved")
			case c.Status.Allocation != nil:
				states = append(states, "allocated")
			case c.DeletionTimestamp == nil:
				states = append(states, "pending")
			}
			return []any{strings.Join(states, ",")}
		}, "State"),
	)
}

func resourceClaimTemplates() *apis.Definition {
	return apis.Resource[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList]("resourceclaimtemplates",
		apis.NoGeneration(),
		apis.Default(func(t *resourcev1.ResourceClaimTemplate) { defaultDeviceClaim(&t.Spec.Spec.Devices) }),
		gated[resourcev1.ResourceClaimTemplate](deviceClaimGates()),
		apis.Validate(func(_ context.Context, t *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return validateDeviceClaim(&t.Spec.Spec.Devices, field.NewPath("spec", "spec", "devices"))
		}),
		constant("spec", func(t *resourcev1.ResourceClaimTemplate) any { return t.Spec }),
		table(func(*resourcev1.ResourceClaimTemplate) []any { return nil }),
	)
}

// defaultDeviceClaim asks for one device where a request does not say how many.
func defaultDeviceClaim(c *resourcev1.DeviceClaim) {
	for i := range c.Requests {
		if exactly := c.Requests[i].Exactly; exactly != nil {
			defaultDevices(&exactly.AllocationMode, &exactly.Count, exactly.Tolerations)
		}
		for j := range c.Requests[i].FirstAvailable {
			r := &c.Requests[i].FirstAvailable[j]
			defaultDevices(&r.AllocationMode, &r.Count, r.Tolerations)
		}
	}
}

func defaultDevices(mode *resourcev1.DeviceAllocationMode, count *int64, tolerations []resourcev1.DeviceToleration) {
	fill(mode, resourcev1.DeviceAllocationModeExactCount)
	if *mode == resourcev1.DeviceAllocationModeExactCount {
		fill(count, 1)
	}
	for i := range tolerations {
		fill(&tolerations[i].Operator, resourcev1.DeviceTolerationOpEqual)
	}
}

func validateDeviceClaim(c *resourcev1.DeviceClaim, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	names := map[string]bool{}
	for i := range c.Requests {
		r, at := &c.Requests[i], path.Child("requests").Index(i)
		errs = append(errs, uniqueLabel(r.Name, names, at.Child("name"))...)
		switch {
		case r.Exactly == nil && len(r.FirstAvailable) == 0:
			errs = append(errs, field.Required(at, "exactly one of `exactly` or `firstAvailable` is required"))
		case r.Exactly != nil && len(r.FirstAvailable) > 0:
			errs = append(errs, field.Invalid(at, nil,
				"exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"))
		case r.Exactly != nil:
			errs = append(errs, check.Required(at.Child("exactly", "deviceClassName"), r.Exactly.DeviceClassName)...)
			errs = append(errs, notNegative(at.Child("exactly", "count"), r.Exactly.Count)...)
		}
	}
	return errs
}

func resourceSlices() *apis.Definition {
	return apis.Resource[resourcev1.ResourceSlice, resourcev1.ResourceSliceList]("resourceslices",
		apis.ClusterScoped(),
		apis.RuleOptions(map[string]bool{"DRAPartitionableDevicesType": false}),
		gated[resourcev1.ResourceSlice](sliceGates()),
		apis.Default(func(s *resourcev1.ResourceSlice) {
			for _, device := range s.Spec.Devices {
				for i := range device.Taints {
					defaultTaint(&device.Taints[i])
				}
			}
		}),
		apis.Validate(func(_ context.Context, s *resourcev1.ResourceSlice) field.ErrorList {
			spec := field.NewPath("spec")
			errs := check.Required(spec.Child("driver"), s.Spec.Driver)
			errs = append(errs, check.Required(spec.Child("pool", "name"), s.Spec.Pool.Name)...)
			where := 0
			for _, set := range []bool{
				s.Spec.NodeName != nil, s.Spec.NodeSelector != nil, value(s.Spec.AllNodes), value(s.Spec.PerDeviceNodeSelection),
			} {
				if set {
					where++
				}
			}
			if where != 1 && (where > 0 || len(s.Spec.SharedCounters) == 0) {
				errs = append(errs, field.Invalid(spec, "", "exactly one of `nodeName`, `nodeSelector`, `allNodes`, "+
					"`perDeviceNodeSelection` is required"))
			}
			return errs
		}),
		constant("spec.driver", func(s *resourcev1.ResourceSlice) any { return s.Spec.Driver }),
		constant("spec.pool.name", func(s *resourcev1.ResourceSlice) any { return s.Spec.Pool.Name }),
		constant("spec.nodeName", func(s *resourcev1.ResourceSlice) any { return s.Spec.NodeName }),
		apis.SelectableFields(map[string]func(*resourcev1.ResourceSlice) string{
			"spec.nodeName": func(s *resourcev1.ResourceSlice) string { return value(s.Spec.NodeName) },
			"spec.driver":   func(s *resourcev1.ResourceSlice) string { return s.Spec.Driver },
		}),
		table(func(s *resourcev1.ResourceSlice) []any {
			return []any{value(s.Spec.NodeName), s.Spec.Driver, s.Spec.Pool.Name}
		}, "Node", "Driver", "Pool"),
	)
}
