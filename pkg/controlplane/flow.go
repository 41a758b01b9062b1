package controlplane

import (
	"fmt"

	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
)

// FlowControlFunc makes the flow control of a plane's requests. It may ask the
// plane for its Config and Informers.
type FlowControlFunc func(p *Plane) (utilflowcontrol.Interface, error)

// FlowControl declares what decides when requests are served: API Priority and
// Fairness. At most one part may call it. It runs from the start of the plane to
// its end. Without it, 400 reads and 200 writes at a time are served.
func (p *Plan) FlowControl(name string, build FlowControlFunc) {
	p.flow = append(p.flow, named[FlowControlFunc]{p.part, name, build})
}

// checkFlow finds a second flow control.
func (p *Plan) checkFlow() []error {
	if err := single("flow control", p.flow); err != nil {
		return []error{err}
	}
	return duplicates("flow control", p.flow)
}

// controlFlow puts the plan's flow control into the handler chain.
func (p *Plane) controlFlow(c *genericapiserver.Config) error {
	for _, f := range p.plan.flow {
		control, err := f.value(p)
		if err != nil {
			return fmt.Errorf("part %q: flow control %q: %w", f.part, f.name, err)
		}
		c.FlowControl = control
	}
	return nil
}

// endFlow ends the queue that a flow control owns from the moment it is made, in a
// plane without a server to run it.
func (p *Plane) endFlow() {
	if p.base.FlowControl == nil {
		return
	}
	ended := make(chan struct{})
	close(ended)
	_ = p.base.FlowControl.Run(ended) // the error only says that it never began
}
