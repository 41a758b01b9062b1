package kube

import (
	"cmp"
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// nodesWithStatus keeps the status of a new node: a kubelet registers itself
// with what it has.
type nodesWithStatus struct{ rest.RESTCreateStrategy }

// PrepareForCreate implements rest.RESTCreateStrategy.
func (s nodesWithStatus) PrepareForCreate(ctx context.Context, obj runtime.Object) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		s.RESTCreateStrategy.PrepareForCreate(ctx, obj)
		return
	}
	status := node.Status
	s.RESTCreateStrategy.PrepareForCreate(ctx, node)
	node.Status = status
}

func nodeRow(n *corev1.Node) []any {
	status := []string{"Unknown"}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			status[0] = "NotReady"
			if c.Status == corev1.ConditionTrue {
				status[0] = "Ready"
			}
		}
	}
	if n.Spec.Unschedulable {
		status = append(status, "SchedulingDisabled")
	}
	info := n.Status.NodeInfo
	return []any{
		strings.Join(status, ","), orNone(nodeRoles(n)), info.KubeletVersion,
		address(n, corev1.NodeInternalIP), address(n, corev1.NodeExternalIP),
		cmp.Or(info.OSImage, unknown), cmp.Or(info.KernelVersion, unknown), cmp.Or(info.ContainerRuntimeVersion, unknown),
	}
}

func nodeRoles(n *corev1.Node) string {
	var roles []string
	for key, text := range n.Labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			roles = append(roles, role)
		} else if key == "kubernetes.io/role" && text != "" {
			roles = append(roles, text)
		}
	}
	slices.Sort(roles)
	return strings.Join(slices.Compact(roles), ",")
}

func address(n *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range n.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return none
}
