package auditing_test

import (
	"fmt"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// A server keeps ten logs of 100 MB of what is written, and the bodies of what
// one user sends in another log. Mistakes are told before anything runs.
func ExampleLog() {
	_, err := controlplane.New("example").Storage(memory.Store{}).With(
		core.Namespaces{}, core.Secrets{},
		auditing.Log{Path: "logs/audit.log", MaxSize: 100 << 20, MaxBackups: 10},
		auditing.Log{Name: "suspect", Path: "logs/suspect.log", Policy: &auditv1.Policy{
			Rules: []auditv1.PolicyRule{{Level: "Body", Users: []string{"mallory"}}},
		}},
	).Build()
	fmt.Println(err)
	// Output:
	// part "auditing.Log": policy: rules[0].level: Unsupported value: "Body": supported values: "None", "Metadata", "Request", "RequestResponse"
}
