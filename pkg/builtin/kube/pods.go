package kube

import (
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Pods is the part that serves pods (core/v1) with what the options add. A plane has no
// nodes; what kubectl asks of a running pod, Go functions may answer:
//
//	kube.Pods(
//		apis.Stream("log", func(ctx context.Context, p *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) { ... }),
//		apis.Exec("exec", func(ctx context.Context, p *corev1.Pod, o *corev1.PodExecOptions, s apis.Streams) error { ... }),
//		apis.Attach("attach", func(ctx context.Context, p *corev1.Pod, o *corev1.PodAttachOptions, s apis.Streams) error { ... }),
//		apis.PortForward("portforward", func(ctx context.Context, p *corev1.Pod, port uint16, conn io.ReadWriteCloser) error { ... }),
//		apis.Proxy("proxy", func(ctx context.Context, p *corev1.Pod) (*url.URL, http.RoundTripper, error) { ... }),
//	)
//
// kubectl exec and attach refuse pods whose status.phase says that they have ended, and
// kubectl port-forward all but those that run: somebody has to write it.
// [Core] serves pods too; a plane has one of the two.
func Pods(options ...apis.Option) controlplane.Part {
	g := core()
	return ownPods{part{group: g}, apis.NewGroup(g.gv, g.rules, g.definitions, pods(options...))}
}

// ownPods serves a group that no other part shares.
type ownPods struct {
	part
	group *apis.Group
}

// Install serves the pods.
func (p ownPods) Install(plan *controlplane.Plan) error { return p.serve(plan, p.group) }
