package fairness

import (
	"cmp"
	"fmt"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// PriorityAndFairness decides by FlowSchemas and PriorityLevelConfigurations
// which requests are served now, which wait and which are refused with 429. It
// needs kube.FlowControl, which serves both.
// https://kubernetes.io/docs/concepts/cluster-administration/flow-control/
//
// The mandatory and suggested objects of Kubernetes exist when the server is
// ready, except those about nodes and what runs on them: the levels "system" and
// "node-high", the schemas "system-nodes", "system-node-high" and
// "kube-scheduler". An object that is deleted comes back. A mandatory one always
// has the spec it came with; a suggested one is the user's once its annotation
// apf.kubernetes.io/autoupdate-spec is "false".
//
// Requests of group system:masters, and so those of the server itself, are exempt.
type PriorityAndFairness struct {
	// Concurrency is how many requests are served at a time, shared between the
	// priority levels. Empty: 600, as kube-apiserver.
	Concurrency int
}

// defaultConcurrency is the sum of kube-apiserver's --max-requests-inflight and
// --max-mutating-requests-inflight.
const defaultConcurrency = 600

// PartName implements the name errors use.
func (PriorityAndFairness) PartName() string { return "fairness.PriorityAndFairness" }

// Install declares the flow control and the work that keeps its objects.
func (f PriorityAndFairness) Install(p *controlplane.Plan) error {
	if f.Concurrency < 0 {
		return fmt.Errorf("field Concurrency is %d: want more than 0", f.Concurrency)
	}
	concurrency := cmp.Or(f.Concurrency, defaultConcurrency)
	for _, kind := range []string{"FlowSchema", "PriorityLevelConfiguration"} {
		p.Need("kube.FlowControl()", flowcontrolv1.SchemeGroupVersion.WithKind(kind))
	}
	p.FlowControl("priority and fairness", func(plane *controlplane.Plane) (utilflowcontrol.Interface, error) {
		return utilflowcontrol.New(plane.Informers(), plane.Client().FlowcontrolV1(), concurrency), nil
	})
	p.Work(controlplane.Work{Name: "flow-control-defaults", Start: makeDefaults, Run: keepDefaults, Elected: true})
	return nil
}
