package kube

import (
	"cmp"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sailplane-dev/sailplane/pkg/internal/check"
)

func defaultClaim(c *corev1.PersistentVolumeClaim) {
	set(&c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	fill(&c.Status.Phase, corev1.ClaimPending)
}

func defaultVolumeObject(v *corev1.PersistentVolume) {
	fill(&v.Spec.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	set(&v.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	switch s := &v.Spec.PersistentVolumeSource; {
	case s.HostPath != nil:
		set(&s.HostPath.Type, corev1.HostPathUnset)
	case s.ISCSI != nil:
		fill(&s.ISCSI.ISCSIInterface, "default")
	case s.AzureDisk != nil:
		defaultAzureDisk(s.AzureDisk)
	case s.RBD != nil:
		fill(&s.RBD.RBDPool, "rbd")
		fill(&s.RBD.RadosUser, "admin")
		fill(&s.RBD.Keyring, "/etc/ceph/keyring")
	case s.ScaleIO != nil:
		fill(&s.ScaleIO.StorageMode, "ThinProvisioned")
		fill(&s.ScaleIO.FSType, "xfs")
	}
}

func validateVolume(_ context.Context, v *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	errs := accessModes(v.Spec.AccessModes, spec)
	if len(v.Spec.Capacity) == 0 {
		errs = append(errs, field.Required(spec.Child("capacity"), ""))
	}
	if v.Spec.PersistentVolumeSource == (corev1.PersistentVolumeSource{}) {
		errs = append(errs, field.Required(spec, "must specify a volume type"))
	}
	return append(errs, check.OneOf(spec.Child("persistentVolumeReclaimPolicy"), v.Spec.PersistentVolumeReclaimPolicy,
		corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
}

func validateVolumeUpdate(_ context.Context, v, old *corev1.PersistentVolume) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource) {
		errs = append(errs, field.Forbidden(spec.Child("persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation"))
	}
	return append(errs, apivalidation.ValidateImmutableField(v.Spec.VolumeMode, old.Spec.VolumeMode, spec.Child("volumeMode"))...)
}

func validateClaim(_ context.Context, c *corev1.PersistentVolumeClaim) field.ErrorList {
	spec := field.NewPath("spec")
	errs := accessModes(c.Spec.AccessModes, spec)
	storage := spec.Child("resources").Key(string(corev1.ResourceStorage))
	if size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, ""))
	} else if size.Sign() <= 0 {
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	return errs
}

// validateClaimUpdate keeps a claim as it is, except for its size, its class of
// attributes, and the volume that it is bound to while it has none.
func validateClaimUpdate(_ context.Context, c, old *corev1.PersistentVolumeClaim) field.ErrorList {
	is, was := c.Spec.DeepCopy(), old.Spec.DeepCopy()
	if was.VolumeName == "" {
		is.VolumeName = ""
	}
	if was.StorageClassName == nil {
		is.StorageClassName = nil // a class may be chosen later
	}
	if old.Status.Phase == corev1.ClaimBound {
		is.Resources.Requests = was.Resources.Requests
		is.VolumeAttributesClassName = was.VolumeAttributesClassName
	}
	var errs field.ErrorList
	if !equality.Semantic.DeepEqual(is, was) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"),
			"spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"))
	}
	size, before := c.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	if got := old.Status.Capacity[corev1.ResourceStorage]; size.Cmp(before) < 0 && size.Cmp(got) <= 0 {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "resources", "requests", "storage"),
			"field can not be less than status.capacity"))
	}
	return errs
}

func accessModes(modes []corev1.PersistentVolumeAccessMode, spec *field.Path) field.ErrorList {
	path := spec.Child("accessModes")
	if len(modes) == 0 {
		return field.ErrorList{field.Required(path, "at least 1 access mode is required")}
	}
	var errs field.ErrorList
	for _, mode := range modes {
		errs = append(errs, check.OneOf(path, mode,
			corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod)...)
	}
	return errs
}

func volumeRow(v *corev1.PersistentVolume) []any {
	claim := ""
	if ref := v.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	phase := string(v.Status.Phase)
	if v.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	return []any{
		quantity(v.Spec.Capacity), modesText(v.Spec.AccessModes), string(v.Spec.PersistentVolumeReclaimPolicy), phase, claim,
		v.Spec.StorageClassName, orUnset(v.Spec.VolumeAttributesClassName), v.Status.Reason, orUnset(v.Spec.VolumeMode),
	}
}

func claimRow(c *corev1.PersistentVolumeClaim) []any {
	phase := string(c.Status.Phase)
	if c.DeletionTimestamp != nil {
		phase = "Terminating"
	}
	capacity, modes := "", ""
	if c.Spec.VolumeName != "" {
		capacity, modes = quantity(c.Status.Capacity), modesText(c.Status.AccessModes)
	}
	return []any{
		phase, c.Spec.VolumeName, capacity, modes, value(c.Spec.StorageClassName),
		orUnset(c.Spec.VolumeAttributesClassName), orUnset(c.Spec.VolumeMode),
	}
}

func quantity(list corev1.ResourceList) string {
	size := list[corev1.ResourceStorage]
	return size.String()
}

// orUnset is the text of a cell that may be left out.
func orUnset[T ~string](text *T) string { return cmp.Or(string(value(text)), "<unset>") }

// modesText is the abbreviations of access modes in a fixed order.
func modesText(modes []corev1.PersistentVolumeAccessMode) string {
	have := map[corev1.PersistentVolumeAccessMode]bool{}
	for _, mode := range modes {
		have[mode] = true
	}
	var text []string
	for _, m := range []struct {
		mode  corev1.PersistentVolumeAccessMode
		short string
	}{
		{corev1.ReadWriteOnce, "RWO"}, {corev1.ReadOnlyMany, "ROX"}, {corev1.ReadWriteMany, "RWX"}, {corev1.ReadWriteOncePod, "RWOP"},
	} {
		if have[m.mode] {
			text = append(text, m.short)
		}
	}
	return strings.Join(text, ",")
}
