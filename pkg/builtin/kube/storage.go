package kube

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/internal/check"
	storagerules "github.com/sailplane-dev/sailplane/pkg/internal/rules/storage"
)

func storage() apiGroup {
	return apiGroup{storagev1.SchemeGroupVersion, storageDefinitions, storagerules.RegisterValidations, nil, []func() *apis.Definition{
		storageClasses, volumeAttachments, volumeAttributesClasses, csiDrivers, csiNodes, csiStorageCapacities,
	}}
}

func storageClasses() *apis.Definition {
	return apis.Resource[storagev1.StorageClass, storagev1.StorageClassList]("storageclasses",
		apis.ClusterScoped(), apis.ShortNames("sc"), apis.NoGeneration(),
		apis.Default(func(c *storagev1.StorageClass) {
			set(&c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete)
			set(&c.VolumeBindingMode, storagev1.VolumeBindingImmediate)
		}),
		apis.Validate(func(_ context.Context, c *storagev1.StorageClass) field.ErrorList {
			errs := check.OneOf(field.NewPath("reclaimPolicy"), value(c.ReclaimPolicy),
				corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain)
			return append(errs, check.OneOf(field.NewPath("volumeBindingMode"), value(c.VolumeBindingMode),
				storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer)...)
		}),
		apis.ValidateUpdate(func(_ context.Context, c, old *storagev1.StorageClass) field.ErrorList {
			errs := sameParameters(c.Parameters, old.Parameters)
			if c.Provisioner != old.Provisioner {
				errs = append(errs, field.Forbidden(field.NewPath("provisioner"), "updates to provisioner are forbidden."))
			}
			if value(c.ReclaimPolicy) != value(old.ReclaimPolicy) {
				errs = append(errs, field.Forbidden(field.NewPath("reclaimPolicy"), "updates to reclaimPolicy are forbidden."))
			}
			return append(errs, immutable(field.NewPath("volumeBindingMode"), c.VolumeBindingMode, old.VolumeBindingMode)...)
		}),
		table(func(c *storagev1.StorageClass) []any {
			return []any{c.Provisioner, string(value(c.ReclaimPolicy)), string(value(c.VolumeBindingMode)), value(c.AllowVolumeExpansion)}
		}, "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion"),
	)
}

func sameParameters(is, was map[string]string) field.ErrorList {
	if maps.Equal(is, was) {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden.")}
}

func volumeAttachments() *apis.Definition {
	return apis.Resource[storagev1.VolumeAttachment, storagev1.VolumeAttachmentList]("volumeattachments",
		apis.ClusterScoped(), apis.Status(), apis.NoGeneration(),
		apis.Validate(func(_ context.Context, a *storagev1.VolumeAttachment) field.ErrorList {
			spec := field.NewPath("spec")
			errs := check.Required(spec.Child("nodeName"), a.Spec.NodeName)
			source, one := a.Spec.Source, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
			switch {
			case source.InlineVolumeSpec == nil && value(source.PersistentVolumeName) == "":
				errs = append(errs, field.Required(spec.Child("source"), one))
			case source.InlineVolumeSpec != nil && source.PersistentVolumeName != nil:
				errs = append(errs, field.Forbidden(spec.Child("source"), one))
			}
			return errs
		}),
		constant("spec", func(a *storagev1.VolumeAttachment) any { return a.Spec }),
		table(func(a *storagev1.VolumeAttachment) []any {
			return []any{a.Spec.Attacher, value(a.Spec.Source.PersistentVolumeName), a.Spec.NodeName, boolean(&a.Status.Attached, "")}
		}, "Attacher", "PV", "Node", "Attached"),
	)
}

func volumeAttributesClasses() *apis.Definition {
	return apis.Resource[storagev1.VolumeAttributesClass, storagev1.VolumeAttributesClassList]("volumeattributesclasses",
		apis.ClusterScoped(), apis.ShortNames("vac"), apis.NoGeneration(),
		apis.Validate(func(_ context.Context, c *storagev1.VolumeAttributesClass) field.ErrorList {
			errs := check.Required(field.NewPath("driverName"), c.DriverName)
			if len(c.Parameters) == 0 {
				errs = append(errs, field.Required(field.NewPath("parameters"), "must contain at least one key/value pair"))
			}
			return errs
		}),
		apis.ValidateUpdate(func(_ context.Context, c, old *storagev1.VolumeAttributesClass) field.ErrorList {
			errs := sameParameters(c.Parameters, old.Parameters)
			if c.DriverName != old.DriverName {
				errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
			}
			return errs
		}),
		table(func(c *storagev1.VolumeAttributesClass) []any { return []any{c.DriverName} }, "DriverName"),
	)
}

func csiDrivers() *apis.Definition {
	return apis.Resource[storagev1.CSIDriver, storagev1.CSIDriverList]("csidrivers",
		apis.ClusterScoped(), apis.NoGeneration(),
		apis.Default(func(d *storagev1.CSIDriver) {
			set(&d.Spec.AttachRequired, true)
			set(&d.Spec.PodInfoOnMount, false)
			set(&d.Spec.StorageCapacity, false)
			set(&d.Spec.FSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
			set(&d.Spec.RequiresRepublish, false)
			set(&d.Spec.SELinuxMount, false)
			if len(d.Spec.VolumeLifecycleModes) == 0 {
				d.Spec.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
			}
		}),
		apis.Validate(func(_ context.Context, d *storagev1.CSIDriver) field.ErrorList {
			return check.OneOf(field.NewPath("spec", "fsGroupPolicy"), value(d.Spec.FSGroupPolicy), storagev1.FileFSGroupPolicy,
				storagev1.NoneFSGroupPolicy, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
		}),
		constant("spec.attachRequired", func(d *storagev1.CSIDriver) any { return d.Spec.AttachRequired }),
		constant("spec.volumeLifecycleModes", func(d *storagev1.CSIDriver) any { return d.Spec.VolumeLifecycleModes }),
		table(csiDriverRow, "AttachRequired", "PodInfoOnMount", "StorageCapacity", "TokenRequests", "RequiresRepublish", "Modes"),
	)
}

func csiDriverRow(d *storagev1.CSIDriver) []any {
	var modes, audiences []string
	for _, mode := range d.Spec.VolumeLifecycleModes {
		modes = append(modes, string(mode))
	}
	for _, token := range d.Spec.TokenRequests {
		audiences = append(audiences, token.Audience)
	}
	tokens := "<unset>"
	if audiences != nil {
		tokens = strings.Join(audiences, ",")
	}
	return []any{
		value(d.Spec.AttachRequired), value(d.Spec.PodInfoOnMount), value(d.Spec.StorageCapacity), tokens,
		value(d.Spec.RequiresRepublish), strings.Join(modes, ","),
	}
}

func csiNodes() *apis.Definition {
	return apis.Resource[storagev1.CSINode, storagev1.CSINodeList]("csinodes",
		apis.ClusterScoped(), apis.Status(), apis.NoGeneration(),
		gated[storagev1.CSINode](csiNodeGates()),
		apis.Validate(func(_ context.Context, n *storagev1.CSINode) field.ErrorList {
			var errs field.ErrorList
			names := map[string]bool{}
			for i, d := range n.Spec.Drivers {
				at := field.NewPath("spec", "drivers").Index(i)
				errs = append(errs, check.Required(at.Child("name"), d.Name)...)
				errs = append(errs, check.Required(at.Child("nodeID"), d.NodeID)...)
				if names[d.Name] {
					errs = append(errs, field.Duplicate(at.Child("name"), d.Name))
				}
				names[d.Name] = true
			}
			return errs
		}),
		table(func(n *storagev1.CSINode) []any { return []any{int64(len(n.Spec.Drivers))} }, "Drivers#"),
	)
}

func csiStorageCapacities() *apis.Definition {
	return apis.Resource[storagev1.CSIStorageCapacity, storagev1.CSIStorageCapacityList]("csistoragecapacities",
		apis.NoGeneration(),
		apis.Validate(func(_ context.Context, c *storagev1.CSIStorageCapacity) field.ErrorList {
			return check.Required(field.NewPath("storageClassName"), c.StorageClassName)
		}),
		constant("nodeTopology", func(c *storagev1.CSIStorageCapacity) any { return c.NodeTopology }),
		constant("storageClassName", func(c *storagev1.CSIStorageCapacity) any { return c.StorageClassName }),
		table(func(c *storagev1.CSIStorageCapacity) []any {
			capacity := "<unset>"
			if c.Capacity != nil {
				capacity = fmt.Sprint(c.Capacity)
			}
			return []any{c.StorageClassName, capacity}
		}, "StorageClassName", "Capacity"),
	)
}
