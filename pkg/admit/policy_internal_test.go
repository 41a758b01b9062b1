package admit

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestUnjudged(t *testing.T) {
	t.Parallel()
	const registration = "admissionregistration.k8s.io"
	cases := map[string]struct {
		reason, group, resource string
		want                    bool
	}{
		"policy":   {"a policy could protect itself", registration, "validatingadmissionpolicies", true},
		"binding":  {"a policy could protect its binding", registration, "mutatingadmissionpolicybindings", true},
		"webhooks": {"policies may judge webhooks", registration, "validatingwebhookconfigurations", false},
		"review":   {"nobody could be asked who may do what", "authorization.k8s.io", "subjectaccessreviews", true},
		"token":    {"nobody could get in", "authentication.k8s.io", "tokenreviews", true},
		"other":    {"all else is judged", "", "configmaps", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := exempt(schema.GroupResource{Group: c.group, Resource: c.resource}); got != c.want {
				t.Errorf("%s: got %t", c.reason, got)
			}
		})
	}
}
