package kube

import (
	"context"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	flowcontrolrules "github.com/sailplane-dev/sailplane/pkg/internal/rules/flowcontrol"
)

func flowControl() apiGroup {
	definitions, rules := flowcontrolDefinitions, flowcontrolrules.RegisterValidations
	return apiGroup{flowcontrolv1.SchemeGroupVersion, definitions, rules, nil, []func() *apis.Definition{flowSchemas, priorityLevels}}
}

func flowSchemas() *apis.Definition {
	return apis.Resource[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList]("flowschemas",
		apis.ClusterScoped(), apis.Status(),
		apis.Default(func(f *flowcontrolv1.FlowSchema) {
			fill(&f.Spec.MatchingPrecedence, 1000)
		}),
		apis.Validate(validateFlowSchema),
		table(func(f *flowcontrolv1.FlowSchema) []any {
			missing := "?"
			for _, c := range f.Status.Conditions {
				if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
					missing = string(c.Status)
				}
			}
			method := none
			if f.Spec.DistinguisherMethod != nil {
				method = string(f.Spec.DistinguisherMethod.Type)
			}
			return []any{f.Spec.PriorityLevelConfiguration.Name, int64(f.Spec.MatchingPrecedence), method, missing}
		}, "PriorityLevel", "MatchingPrecedence#", "DistinguisherMethod", "MissingPL"),
		ageAt(5, 4),
	)
}

func validateFlowSchema(_ context.Context, f *flowcontrolv1.FlowSchema) field.ErrorList {
	spec := field.NewPath("spec")
	errs := check.Required(spec.Child("priorityLevelConfiguration", "name"), f.Spec.PriorityLevelConfiguration.Name)
	if n := f.Spec.MatchingPrecedence; n < 1 || n > flowcontrolv1.FlowSchemaMaxMatchingPrecedence {
		errs = append(errs, field.Invalid(spec.Child("matchingPrecedence"), n, "must be between 1 and 10000"))
	}
	if m := f.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, check.OneOf(spec.Child("distinguisherMethod", "type"), m.Type,
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	for i, rule := range f.Spec.Rules {
		at := spec.Child("rules").Index(i)
		if len(rule.Subjects) == 0 {
			errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
		}
		if len(rule.ResourceRules)+len(rule.NonResourceRules) == 0 {
			errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
		}
	}
	return errs
}

func priorityLevels() *apis.Definition {
	return apis.Resource[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](
		"prioritylevelconfigurations",
		apis.ClusterScoped(), apis.Status(),
		apis.Default(defaultPriorityLevel),
		apis.Validate(validatePriorityLevel),
		table(priorityLevelRow, "Type", "NominalConcurrencyShares", "Queues", "HandSize", "QueueLengthLimit"),
	)
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := p.Spec.Exempt; exempt != nil {
		set(&exempt.NominalConcurrencyShares, 0)
		set(&exempt.LendablePercent, 0)
	}
	limited := p.Spec.Limited
	if limited == nil {
		return
	}
	set(&limited.NominalConcurrencyShares, 30)
	set(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		fill(&queuing.Queues, 64)
		fill(&queuing.HandSize, 8)
		fill(&queuing.QueueLengthLimit, 50)
	}
}

func validatePriorityLevel(_ context.Context, p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	spec := field.NewPath("spec")
	errs := check.OneOf(spec.Child("type"), p.Spec.Type,
		flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	limited := p.Spec.Type == flowcontrolv1.PriorityLevelEnablementLimited
	switch {
	case limited && p.Spec.Limited == nil:
		return append(errs, field.Required(spec.Child("limited"), "must not be empty when type is Limited"))
	case !limited && p.Spec.Limited != nil:
		return append(errs, field.Forbidden(spec.Child("limited"), "must be nil if the type is not Limited"))
	case !limited:
		return errs
	}
	response, at := p.Spec.Limited.LimitResponse, spec.Child("limited", "limitResponse")
	errs = append(errs, check.OneOf(at.Child("type"), response.Type,
		flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	queue := response.Type == flowcontrolv1.LimitResponseTypeQueue
	if queue && response.Queuing == nil {
		errs = append(errs, field.Required(at.Child("queuing"), "must not be empty if limited type is Queue"))
	} else if !queue && response.Queuing != nil {
		errs = append(errs, field.Forbidden(at.Child("queuing"), "must be nil if limited.limitResponse.type is not Limited"))
	}
	return errs
}

func priorityLevelRow(p *flowcontrolv1.PriorityLevelConfiguration) []any {
	shares, queues, hand, length := any(none), any(none), any(none), any(none)
	switch {
	case p.Spec.Limited != nil:
		shares = int64(value(p.Spec.Limited.NominalConcurrencyShares))
		if q := p.Spec.Limited.LimitResponse.Queuing; q != nil {
			queues, hand, length = int64(q.Queues), int64(q.HandSize), int64(q.QueueLengthLimit)
		}
	case p.Spec.Exempt != nil:
		shares = int64(value(p.Spec.Exempt.NominalConcurrencyShares))
	}
	return []any{string(p.Spec.Type), shares, queues, hand, length}
}
