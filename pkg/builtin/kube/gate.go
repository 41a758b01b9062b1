package kube

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// Feature gates of Kubernetes that are off by default and guard fields.
const (
	volumeUsers        = "AtomicWriteVolumeUserFields"
	emptyDirModes      = "EmptyDirVolumeMode"
	bindMountOptions   = "VolumeBindMountOptions"
	probeProtocols     = "H2CContainerProbe"
	probeModes         = "GRPCContainerProbeTLS"
	evictionResponders = "EvictionRequestAPI"
	volumeHealth       = "CSIVolumeHealth"
	allocatable        = "DRANodeAllocatableResources"
	preemptionPolicy   = "InPlacePodVerticalScalingSchedulerPreemption"
	partitions         = "DRAPartitionableDevicesType"
	operations         = "DRAOptionalNodeOperations"
	compatibility      = "DRADeviceCompatibilityGroups"
	derivedAttributes  = "DRADerivedAttributes"
)

// gates maps struct types to the fields that feature gates guard, and those to
// the names of the gates: kube-apiserver drops such a field unless the stored
// object uses the same feature.
type gates map[reflect.Type]map[string]string

// in is the key of gates for fields of T.
func in[T any]() reflect.Type { return reflect.TypeFor[T]() }

func podSpecGates() gates {
	return gates{
		in[corev1.SecretVolumeSource]():            {volumeUsers: "DefaultUser"},
		in[corev1.ConfigMapVolumeSource]():         {volumeUsers: "DefaultUser"},
		in[corev1.DownwardAPIVolumeSource]():       {volumeUsers: "DefaultUser"},
		in[corev1.ProjectedVolumeSource]():         {volumeUsers: "DefaultUser"},
		in[corev1.KeyToPath]():                     {volumeUsers: "User"},
		in[corev1.DownwardAPIVolumeFile]():         {volumeUsers: "User"},
		in[corev1.ServiceAccountTokenProjection](): {volumeUsers: "User"},
		in[corev1.ClusterTrustBundleProjection]():  {volumeUsers: "User"},
		in[corev1.PodCertificateProjection]():      {volumeUsers: "User"},
		in[corev1.EmptyDirVolumeSource]():          {emptyDirModes: "Mode"},
		in[corev1.VolumeMount]():                   {bindMountOptions: "BindMountOptions"},
		in[corev1.HTTPGetAction]():                 {probeProtocols: "Protocol"},
		in[corev1.GRPCAction]():                    {probeModes: "Mode"},
		in[corev1.PodSpec]():                       {evictionResponders: "EvictionResponders"},
	}
}

func podGates() gates {
	all := podSpecGates()
	all[in[corev1.PodStatus]()] = map[string]string{volumeHealth: "VolumeHealth", allocatable: "NodeAllocatableResourceClaimStatuses"}
	return all
}

func nodeGates() gates {
	return gates{in[corev1.NodeSpec](): {preemptionPolicy: "PodPreemptionPolicy"}}
}

func volumeClaimGates() gates {
	return gates{in[corev1.PersistentVolumeClaimStatus](): {volumeHealth: "HealthStatus"}}
}

func csiNodeGates() gates {
	return gates{in[storagev1.CSINodeStatus](): {volumeHealth: "StorageHealth"}}
}

func sliceGates() gates {
	return gates{
		in[resourcev1.ResourceSliceSpec]():        {partitions: "PartitionTypeAttribute", operations: "SkipNodeOperations"},
		in[resourcev1.Device]():                   {allocatable: "NodeAllocatableResources"},
		in[resourcev1.DeviceCounterConsumption](): {compatibility: "CompatibilityGroups"},
	}
}

// deviceClaimGates are for resourceclaims and templates of them.
func deviceClaimGates() gates {
	return gates{
		in[resourcev1.ExactDeviceRequest]():            {derivedAttributes: "DerivedAttributes"},
		in[resourcev1.DeviceSubRequest]():              {derivedAttributes: "DerivedAttributes"},
		in[resourcev1.DeviceRequestAllocationResult](): {operations: "SkipNodeOperations"},
	}
}

// gated is the option for kinds that have fields of features that are off.
func gated[T any](g gates) apis.Option {
	return apis.Drop(func(obj, old *T) { drop(obj, old, g) })
}

// drop empties guarded fields, except those of features that the old object uses.
func drop[T any](obj, old *T, g gates) {
	used := map[string][]reflect.Value{}
	if g.find(reflect.ValueOf(obj), used); len(used) == 0 {
		return
	}
	before := map[string][]reflect.Value{}
	g.find(reflect.ValueOf(old), before)
	for feature, fields := range used {
		if len(before[feature]) > 0 {
			continue
		}
		for _, field := range fields {
			field.SetZero()
		}
	}
}

// find adds the fields that have a value, wherever they are below v.
func (g gates) find(v reflect.Value, used map[string][]reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			g.find(v.Elem(), used)
		}
	case reflect.Slice:
		if kind := v.Type().Elem().Kind(); kind == reflect.Struct || kind == reflect.Pointer {
			for i := range v.Len() {
				g.find(v.Index(i), used)
			}
		}
	case reflect.Struct:
		for feature, name := range g[v.Type()] {
			if field := v.FieldByName(name); !isEmpty(field) {
				used[feature] = append(used[feature], field)
			}
		}
		for i := range v.NumField() {
			if field := v.Field(i); field.CanSet() { // it is exported
				g.find(field, used)
			}
		}
	}
}

// isEmpty tells whether a pointer, a list or a map holds nothing.
func isEmpty(v reflect.Value) bool {
	return v.IsZero() || v.Kind() != reflect.Pointer && v.Len() == 0
}
