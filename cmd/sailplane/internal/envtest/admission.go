package envtest

import (
	"io"
	"slices"
	"strings"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/quota"
)

// plugin is an admission plugin of kube-apiserver that can be switched on and
// off.
type plugin struct {
	name string
	part controlplane.Part
	off  bool // unless it is enabled
}

// plugins returns the existing ones, in the order of kube-apiserver.
func plugins() []plugin {
	return []plugin{
		{name: "LimitRanger", part: quota.LimitRanges{}},
		{name: "OwnerReferencesPermissionEnforcement", part: lifecycle.OwnerPermissions{}, off: true},
		{name: "MutatingAdmissionPolicy", part: admit.MutatingPolicies{}},
		{name: "MutatingAdmissionWebhook", part: admit.MutatingWebhooks{}},
		{name: "ValidatingAdmissionPolicy", part: admit.ValidatingPolicies{}},
		{name: "ValidatingAdmissionWebhook", part: admit.ValidatingWebhooks{}},
		{name: "ResourceQuota", part: quota.ResourceQuotas{}},
	}
}

// alwaysOn returns the plugins that are part of something else and cannot be
// left out.
func alwaysOn() []string { return []string{"NamespaceLifecycle"} }

// admission returns the plugins that the flags ask for.
func (s *apiServer) admission(log io.Writer) []controlplane.Part {
	var parts []controlplane.Part
	var names []string
	for _, p := range plugins() {
		names = append(names, p.name)
		if has(s.disable, p.name) || p.off && !has(s.enable, p.name) {
			continue
		}
		parts = append(parts, p.part)
	}
	for _, name := range s.enable {
		if name = strings.TrimSpace(name); !slices.Contains(names, name) && !slices.Contains(alwaysOn(), name) {
			warn(log, "--enable-admission-plugins %s has no effect: there is no such plugin", name)
		}
	}
	for _, name := range s.disable {
		// A plugin that does not exist is off anyway.
		if name = strings.TrimSpace(name); slices.Contains(alwaysOn(), name) {
			warn(log, "--disable-admission-plugins %s has no effect: it is always on", name)
		}
	}
	return parts
}
