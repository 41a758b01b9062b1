package server

import (
	"context"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// The values of authorization.modes.
const (
	ModeRBAC        = "RBAC"
	ModeWebhook     = "Webhook"
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
)

// authorization returns the authorizers, in order.
func (b *build) authorization() controlplane.Part {
	parts := controlplane.Parts{b.authorizers()}
	var filtered authz.FilteredLists
	for _, name := range b.Authorization.FilteredLists {
		filtered.Resources = append(filtered.Resources, schema.ParseGroupResource(name))
	}
	if len(filtered.Resources) > 0 {
		parts = append(parts, filtered)
	}
	return parts
}

func (b *build) authorizers() controlplane.Part {
	a := b.Authorization
	if a.ConfigFile != "" && len(a.Authorizers) > 0 {
		b.wrong("authorization.authorizers", "there is authorization.configFile, too: give one of them")
	}
	switch {
	case a.ConfigFile != "":
		return authz.Config{ConfigFile: a.ConfigFile}
	case len(a.Authorizers) > 0:
		return authz.Config{ConfigFile: b.at("authorization.authorizers"), Read: b.live.authorizers}
	}
	var parts controlplane.Parts
	for _, mode := range a.Modes {
		switch mode {
		case ModeRBAC:
			parts = append(parts, authz.RBAC{})
		case ModeAlwaysAllow:
			parts = append(parts, always(mode, authz.Allow))
		case ModeAlwaysDeny:
			parts = append(parts, always(mode, authz.NoOpinion))
		case ModeWebhook:
			if a.WebhookConfigFile == "" {
				b.wrong("authorization.webhookConfigFile", "it is missing: mode %s needs it", mode)
				continue
			}
			parts = append(parts, authz.Webhook{ConfigFile: a.WebhookConfigFile, FailurePolicy: authz.NoOpinion})
		default:
			b.wrong("authorization.modes", "there is no mode %q: want %s, %s, %s or %s", mode,
				ModeRBAC, ModeWebhook, ModeAlwaysAllow, ModeAlwaysDeny)
		}
	}
	return parts
}

func always(name string, d authz.Decision) controlplane.Part {
	return authz.Func(strings.ToLower(name), func(context.Context, authz.Attributes) (authz.Decision, string, error) {
		return d, "", nil
	})
}
