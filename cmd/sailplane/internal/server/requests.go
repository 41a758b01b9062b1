package server

import (
	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
)

// limits returns what bounds requests and objects.
func (b *build) limits() controlplane.Part {
	l := b.Limits
	var parts controlplane.Parts
	if l.PriorityAndFairness {
		parts = append(parts, fairness.PriorityAndFairness{Concurrency: l.MaxRequestsInFlight + l.MaxMutatingRequestsInFlight})
	}
	switch limits := b.live.limits(); {
	case b.live.follow:
		parts = append(parts, fairness.FollowLimits(b.live.limits))
	case limits != (fairness.Limits{}):
		parts = append(parts, limits)
	}
	return parts
}

// noAudit in audit.path stands for no audit log.
const noAudit = "none"

// audit returns what records requests.
func (b *build) audit() controlplane.Part {
	a := b.Audit
	var parts controlplane.Parts
	log := auditing.Log{
		Path: a.Path, PolicyFile: a.PolicyFile, Format: auditing.Format(a.Format), Mode: auditing.Mode(a.Mode),
		MaxSize: a.MaxSize.Value(), MaxBackups: a.MaxBackups, MaxAge: a.MaxAge.Duration,
	}
	if log.Path == "" {
		log.Path = b.in("audit.log")
	}
	if log.Path != "" && log.Path != noAudit {
		parts = append(parts, log)
	}
	if a.Webhook.ConfigFile != "" {
		parts = append(parts, auditing.Webhook{
			ConfigFile: a.Webhook.ConfigFile, PolicyFile: a.Webhook.PolicyFile, Mode: auditing.Mode(a.Webhook.Mode),
		})
	}
	return parts
}
