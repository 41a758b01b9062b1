package quota

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	resourcehelper "k8s.io/component-helpers/resource"
)

// use is what a limited object asks for.
type use struct{ requests, limits corev1.ResourceList }

// violations are the bounds of an item that an object violates, with the texts of
// Kubernetes.
func violations(item *corev1.LimitRangeItem, obj runtime.Object) []error {
	switch o := obj.(type) {
	case *corev1.Pod:
		switch item.Type {
		case corev1.LimitTypeContainer:
			var errs []error
			for _, list := range [][]corev1.Container{o.Spec.Containers, o.Spec.InitContainers} {
				for i := range list {
					r := &list[i].Resources
					errs = append(errs, outside(item, use{requests: r.Requests, limits: r.Limits})...)
				}
			}
			return errs
		case corev1.LimitTypePod:
			// Sidecars, init containers and what the pod itself says count; overhead does not.
			all := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			return outside(item, use{requests: resourcehelper.PodRequests(o, all), limits: resourcehelper.PodLimits(o, all)})
		}
	case *corev1.PersistentVolumeClaim:
		if item.Type == corev1.LimitTypePersistentVolumeClaim {
			// What a claim says about limits means nothing.
			u := use{requests: o.Spec.Resources.Requests}
			return append(each(item, item.Min, u, minimum), each(item, item.Max, u, maximumRequest)...)
		}
	}
	return nil
}

func outside(item *corev1.LimitRangeItem, u use) []error {
	return slices.Concat(each(item, item.Min, u, minimum), each(item, item.Max, u, maximum),
		each(item, item.MaxLimitRequestRatio, u, maximumRatio))
}

// bound is one quantity of an item.
type bound struct {
	of       corev1.LimitType
	name     corev1.ResourceName
	quantity resource.Quantity
}

// each checks all bounds of one sort, in the order of their names.
func each(item *corev1.LimitRangeItem, list corev1.ResourceList, u use, check func(bound, use) error) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if err := check(bound{item.Type, name, list[name]}, u); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func minimum(b bound, u use) error {
	text := fmt.Sprintf("minimum %s usage per %s is %s", b.name, b.of, b.quantity.String())
	request, requested := u.requests[b.name]
	limit, limited := u.limits[b.name]
	requestValue, limitValue, least := values(request, limit, b.quantity)
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", text)
	case requestValue < least:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	case limited && limitValue < least:
		return fmt.Errorf("%s, but limit is %s", text, limit.String())
	}
	return nil
}

func maximum(b bound, u use) error {
	text := fmt.Sprintf("maximum %s usage per %s is %s", b.name, b.of, b.quantity.String())
	request, requested := u.requests[b.name]
	limit, limited := u.limits[b.name]
	requestValue, limitValue, most := values(request, limit, b.quantity)
	switch {
	case !limited:
		return fmt.Errorf("%s.  No limit is specified", text)
	case limitValue > most:
		return fmt.Errorf("%s, but limit is %s", text, limit.String())
	case requested && requestValue > most:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	}
	return nil
}

// maximumRequest checks the maximum of objects without limits.
func maximumRequest(b bound, u use) error {
	text := fmt.Sprintf("maximum %s usage per %s is %s", b.name, b.of, b.quantity.String())
	request, requested := u.requests[b.name]
	value, _, most := values(request, resource.Quantity{}, b.quantity)
	switch {
	case !requested:
		return fmt.Errorf("%s.  No request is specified", text)
	case value > most:
		return fmt.Errorf("%s, but request is %s", text, request.String())
	}
	return nil
}

func maximumRatio(b bound, u use) error {
	text := fmt.Sprintf("%s max limit to request ratio per %s is %s", b.name, b.of, b.quantity.String())
	request, limit, _ := values(u.requests[b.name], u.limits[b.name], b.quantity)
	switch {
	case request == 0:
		return fmt.Errorf("%s, but no request is specified or request is 0", text)
	case limit == 0:
		return fmt.Errorf("%s, but no limit is specified or limit is 0", text)
	}
	ratio := float64(limit) / float64(request)
	got, most := ratio, float64(b.quantity.Value())
	if b.quantity.Value() <= resource.MaxMilliValue {
		got, most = ratio*1000, float64(b.quantity.MilliValue())
	}
	if got > most {
		return fmt.Errorf("%s, but provided ratio is %f", text, ratio)
	}
	return nil
}

// values makes quantities comparable: in thousandths where all of them fit.
// They are rounded up, as Kubernetes does.
func values(request, limit, bound resource.Quantity) (int64, int64, int64) {
	r, l, b := request.Value(), limit.Value(), bound.Value()
	if max(r, l, b) <= resource.MaxMilliValue {
		return request.MilliValue(), limit.MilliValue(), bound.MilliValue()
	}
	return r, l, b
}
