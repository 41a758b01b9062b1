package kube

import (
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/sailplane-dev/sailplane/pkg/resource"
)

// feature names the fields that a feature gate of Kubernetes guards which is off
// by default: kube-apiserver drops them, unless the stored object has some.
type feature[T any] func(*gate, *T)

// gate is what a feature does with its fields: it finds out whether one is in
// use and, with wipe, empties them.
type gate struct{ wipe, used bool }

func guard[T any](g *gate, p **T) {
	g.used = g.used || *p != nil
	if g.wipe {
		*p = nil
	}
}

func guardList[T any](g *gate, p *[]T) {
	g.used = g.used || len(*p) > 0
	if g.wipe {
		*p = nil
	}
}

// drop empties the fields of features, but those of features that the old object uses.
func drop[T any](obj, old *T, features ...feature[T]) {
	uses := func(o *T, f feature[T]) bool {
		g := gate{}
		if o != nil {
			f(&g, o)
		}
		return g.used
	}
	for _, f := range features {
		if uses(obj, f) && !uses(old, f) {
			f(&gate{wipe: true}, obj)
		}
	}
}

// gated is the option for kinds whose fields are of features that are off.
func gated[T any](features ...feature[T]) resource.Option {
	return resource.Drop(func(obj, old *T) { drop(obj, old, features...) })
}

// gatedPods is the option for kinds that have the template of a pod, or are one.
func gatedPods[T any](spec func(*T) *corev1.PodSpec) resource.Option {
	return resource.Drop(func(obj, old *T) {
		var was *corev1.PodSpec
		if old != nil {
			was = spec(old)
		}
		drop(spec(obj), was, volumeUsers, emptyDirModes, bindMountOptions, probeProtocols, probeModes, evictionResponders)
	})
}

// volumeUsers is AtomicWriteVolumeUserFields.
func volumeUsers(g *gate, s *corev1.PodSpec) {
	keys := func(all []corev1.KeyToPath) {
		for i := range all {
			guard(g, &all[i].User)
		}
	}
	files := func(all []corev1.DownwardAPIVolumeFile) {
		for i := range all {
			guard(g, &all[i].User)
		}
	}
	for i := range s.Volumes {
		v := &s.Volumes[i].VolumeSource
		if v.Secret != nil {
			guard(g, &v.Secret.DefaultUser)
			keys(v.Secret.Items)
		}
		if v.ConfigMap != nil {
			guard(g, &v.ConfigMap.DefaultUser)
			keys(v.ConfigMap.Items)
		}
		if v.DownwardAPI != nil {
			guard(g, &v.DownwardAPI.DefaultUser)
			files(v.DownwardAPI.Items)
		}
		if v.Projected == nil {
			continue
		}
		guard(g, &v.Projected.DefaultUser)
		for j := range v.Projected.Sources {
			projectedUsers(g, &v.Projected.Sources[j], keys, files)
		}
	}
}

func projectedUsers(g *gate, p *corev1.VolumeProjection, keys func([]corev1.KeyToPath), files func([]corev1.DownwardAPIVolumeFile)) {
	if p.Secret != nil {
		keys(p.Secret.Items)
	}
	if p.ConfigMap != nil {
		keys(p.ConfigMap.Items)
	}
	if p.DownwardAPI != nil {
		files(p.DownwardAPI.Items)
	}
	if p.ServiceAccountToken != nil {
		guard(g, &p.ServiceAccountToken.User)
	}
	if p.ClusterTrustBundle != nil {
		guard(g, &p.ClusterTrustBundle.User)
	}
	if p.PodCertificate != nil {
		guard(g, &p.PodCertificate.User)
	}
}

// emptyDirModes is EmptyDirVolumeMode.
func emptyDirModes(g *gate, s *corev1.PodSpec) {
	for i := range s.Volumes {
		if dir := s.Volumes[i].EmptyDir; dir != nil {
			guard(g, &dir.Mode)
		}
	}
}

// eachContainer calls do for the containers of all kinds.
func eachContainer(s *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range s.InitContainers {
		do(&s.InitContainers[i])
	}
	for i := range s.Containers {
		do(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		do((*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// bindMountOptions is VolumeBindMountOptions.
func bindMountOptions(g *gate, s *corev1.PodSpec) {
	eachContainer(s, func(c *corev1.Container) {
		for i := range c.VolumeMounts {
			guardList(g, &c.VolumeMounts[i].BindMountOptions)
		}
	})
}

func probes(c *corev1.Container) []*corev1.Probe {
	return []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe}
}

// probeProtocols is H2CContainerProbe.
func probeProtocols(g *gate, s *corev1.PodSpec) {
	eachContainer(s, func(c *corev1.Container) {
		for _, p := range probes(c) {
			if p != nil && p.HTTPGet != nil {
				guard(g, &p.HTTPGet.Protocol)
			}
		}
		if c.Lifecycle == nil {
			return
		}
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil && h.HTTPGet != nil {
				guard(g, &h.HTTPGet.Protocol)
			}
		}
	})
}

// probeModes is GRPCContainerProbeTLS.
func probeModes(g *gate, s *corev1.PodSpec) {
	eachContainer(s, func(c *corev1.Container) {
		for _, p := range probes(c) {
			if p != nil && p.GRPC != nil {
				guard(g, &p.GRPC.Mode)
			}
		}
	})
}

// evictionResponders is EvictionRequestAPI.
func evictionResponders(g *gate, s *corev1.PodSpec) { guardList(g, &s.EvictionResponders) }

// podVolumeHealth is CSIVolumeHealth, as are claimHealth and storageHealth.
func podVolumeHealth(g *gate, p *corev1.Pod) { guardList(g, &p.Status.VolumeHealth) }

// podResourceStatuses is DRANodeAllocatableResources in a pod.
func podResourceStatuses(g *gate, p *corev1.Pod) {
	guardList(g, &p.Status.NodeAllocatableResourceClaimStatuses)
}

func claimHealth(g *gate, c *corev1.PersistentVolumeClaim) { guard(g, &c.Status.HealthStatus) }

func storageHealth(g *gate, n *storagev1.CSINode) { guardList(g, &n.Status.StorageHealth) }

// preemptionPolicy is InPlacePodVerticalScalingSchedulerPreemption.
func preemptionPolicy(g *gate, n *corev1.Node) { guard(g, &n.Spec.PodPreemptionPolicy) }

// partitionType is DRAPartitionableDevicesType.
func partitionType(g *gate, s *resourcev1.ResourceSlice) { guard(g, &s.Spec.PartitionTypeAttribute) }

// skippedOperations is DRAOptionalNodeOperations in a slice.
func skippedOperations(g *gate, s *resourcev1.ResourceSlice) {
	guardList(g, &s.Spec.SkipNodeOperations)
}

// allocatableResources is DRANodeAllocatableResources in a slice.
func allocatableResources(g *gate, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		d := &s.Spec.Devices[i]
		g.used = g.used || len(d.NodeAllocatableResources) > 0
		if g.wipe {
			d.NodeAllocatableResources = nil
		}
	}
}

// compatibilityGroups is DRADeviceCompatibilityGroups.
func compatibilityGroups(g *gate, s *resourcev1.ResourceSlice) {
	for i := range s.Spec.Devices {
		for j := range s.Spec.Devices[i].ConsumesCounters {
			guardList(g, &s.Spec.Devices[i].ConsumesCounters[j].CompatibilityGroups)
		}
	}
}

// derivedAttributes is DRADerivedAttributes.
func derivedAttributes(g *gate, c *resourcev1.DeviceClaim) {
	for i := range c.Requests {
		if exactly := c.Requests[i].Exactly; exactly != nil {
			guardList(g, &exactly.DerivedAttributes)
		}
		for j := range c.Requests[i].FirstAvailable {
			guardList(g, &c.Requests[i].FirstAvailable[j].DerivedAttributes)
		}
	}
}

func claimAttributes(g *gate, c *resourcev1.ResourceClaim) { derivedAttributes(g, &c.Spec.Devices) }

func templateAttributes(g *gate, t *resourcev1.ResourceClaimTemplate) {
	derivedAttributes(g, &t.Spec.Spec.Devices)
}

// claimOperations is DRAOptionalNodeOperations in what was allocated.
func claimOperations(g *gate, c *resourcev1.ResourceClaim) {
	if c.Status.Allocation != nil {
		for i := range c.Status.Allocation.Devices.Results {
			guardList(g, &c.Status.Allocation.Devices.Results[i].SkipNodeOperations)
		}
	}
}
