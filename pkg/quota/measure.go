package quota

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	apiquota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
)

// measured evaluates a resource with limits on more than the number of objects.
type measured struct {
	apiquota.Evaluator // counts
	names              []corev1.ResourceName
	usage              func(runtime.Object) (corev1.ResourceList, error)
}

var _ apiquota.Evaluator = measured{}

// Handles tells whether a request can change what is used.
func (m measured) Handles(a admission.Attributes) bool {
	return a.GetSubresource() == "" && (a.GetOperation() == admission.Create || a.GetOperation() == admission.Update)
}

// Matches tells whether a quota limits the object.
func (m measured) Matches(q *corev1.ResourceQuota, item runtime.Object) (bool, error) {
	return generic.Matches(q, item, m.MatchingResources, generic.MatchesNoScopeFunc)
}

// MatchingResources are the names that are about this resource.
func (m measured) MatchingResources(names []corev1.ResourceName) []corev1.ResourceName {
	return append(m.Evaluator.MatchingResources(names), apiquota.Intersection(names, m.names)...)
}

// Usage is what an object uses.
func (m measured) Usage(item runtime.Object) (corev1.ResourceList, error) {
	counted, err := m.Evaluator.Usage(item)
	if err != nil {
		return nil, err
	}
	more, err := m.usage(item)
	return apiquota.Add(counted, more), err
}

// services counts the node ports and load balancers that Services ask for.
func services() measured {
	return measured{
		Evaluator: generic.NewObjectCountEvaluator(corev1.Resource("services"), nil, corev1.ResourceServices),
		names:     []corev1.ResourceName{corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers},
		usage: func(item runtime.Object) (corev1.ResourceList, error) {
			s, ok := item.(*corev1.Service)
			if !ok {
				return nil, fmt.Errorf("a %T is not a Service", item)
			}
			ports, balancers := 0, 0
			switch s.Spec.Type {
			case corev1.ServiceTypeNodePort:
				ports = len(s.Spec.Ports)
			case corev1.ServiceTypeLoadBalancer:
				balancers, ports = 1, len(s.Spec.Ports)
				if allocate := s.Spec.AllocateLoadBalancerNodePorts; allocate != nil && !*allocate {
					ports = len(slices.DeleteFunc(slices.Clone(s.Spec.Ports), func(p corev1.ServicePort) bool { return p.NodePort == 0 }))
				}
			}
			return corev1.ResourceList{
				corev1.ResourceServicesNodePorts:     *resource.NewQuantity(int64(ports), resource.DecimalSI),
				corev1.ResourceServicesLoadBalancers: *resource.NewQuantity(int64(balancers), resource.DecimalSI),
			}, nil
		},
	}
}

// claims sums up the storage that PersistentVolumeClaims ask for.
func claims() measured {
	return measured{
		Evaluator: generic.NewObjectCountEvaluator(corev1.Resource("persistentvolumeclaims"), nil, corev1.ResourcePersistentVolumeClaims),
		names:     []corev1.ResourceName{corev1.ResourceRequestsStorage},
		usage: func(item runtime.Object) (corev1.ResourceList, error) {
			c, ok := item.(*corev1.PersistentVolumeClaim)
			if !ok {
				return nil, fmt.Errorf("a %T is not a PersistentVolumeClaim", item)
			}
			return corev1.ResourceList{corev1.ResourceRequestsStorage: c.Spec.Resources.Requests[corev1.ResourceStorage]}, nil
		},
	}
}

// measurable is the resource in which a name limits more than the number of objects.
func measurable(name corev1.ResourceName) (schema.GroupResource, bool) {
	switch name {
	case corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers:
		return corev1.Resource("services"), true
	case corev1.ResourceRequestsStorage:
		return corev1.Resource("persistentvolumeclaims"), true
	}
	return schema.GroupResource{}, false
}

// measure asks the API for objects, since the feed does not have their content.
func (c *counter) measure(ctx context.Context, namespace string, name corev1.ResourceName) (resource.Quantity, error) {
	var list runtime.Object
	var err error
	evaluator := services()
	if name == corev1.ResourceRequestsStorage {
		evaluator = claims()
		list, err = c.core.PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	} else {
		list, err = c.core.Services(namespace).List(ctx, metav1.ListOptions{})
	}
	sum := corev1.ResourceList{name: *resource.NewQuantity(0, resource.DecimalSI)}
	switch {
	case apierrors.IsNotFound(err):
		return sum[name], nil
	case err != nil:
		return resource.Quantity{}, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		usage, err := evaluator.Usage(item)
		sum = apiquota.Add(sum, usage)
		return err
	})
	return sum[name], err
}
