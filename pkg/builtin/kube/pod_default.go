package kube

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// fileMode is that of files made from secrets, configmaps and the like.
const fileMode int32 = 0o644

// defaultPod fills in what a pod leaves open. Some of it does not apply to the
// template of a workload, whose pods get it when they are created.
func defaultPod(p *corev1.Pod) {
	spec := &p.Spec
	defaultPodSpec(spec)
	set(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			c := &list[i]
			for name, limit := range c.Resources.Limits {
				if _, ok := c.Resources.Requests[name]; ok {
					continue
				}
				if c.Resources.Requests == nil {
					c.Resources.Requests = corev1.ResourceList{}
				}
				c.Resources.Requests[name] = limit.DeepCopy()
			}
			for j := range c.Ports {
				if spec.HostNetwork {
					fill(&c.Ports[j].HostPort, c.Ports[j].ContainerPort)
				}
			}
		}
	}
}

// defaultPodSpec fills in what a pod or the template of a workload leaves open.
func defaultPodSpec(s *corev1.PodSpec) {
	fill(&s.RestartPolicy, corev1.RestartPolicyAlways)
	fill(&s.DNSPolicy, corev1.DNSClusterFirst)
	fill(&s.SchedulerName, corev1.DefaultSchedulerName)
	set(&s.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
	set(&s.SecurityContext, corev1.PodSecurityContext{})
	// The field was renamed once: both names always have the same value.
	fill(&s.ServiceAccountName, s.DeprecatedServiceAccount)
	s.DeprecatedServiceAccount = s.ServiceAccountName
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i])
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i])
	}
	for i := range s.EphemeralContainers {
		c := corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&c)
		s.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i].VolumeSource)
	}
}

func defaultContainer(c *corev1.Container) {
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			if from.FieldRef != nil {
				fill(&from.FieldRef.APIVersion, "v1")
			}
			if from.FileKeyRef != nil {
				set(&from.FileKeyRef.Optional, false)
			}
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	fill(&p.TimeoutSeconds, 1)
	fill(&p.PeriodSeconds, 10)
	fill(&p.SuccessThreshold, 1)
	fill(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		set(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		fill(&h.Path, "/")
		fill(&h.Scheme, corev1.URISchemeHTTP)
	}
}

// pullPolicy is Always for an image that may change behind its name: one with
// the tag latest, or with neither tag nor digest.
func pullPolicy(image string) corev1.PullPolicy {
	name, digest, _ := strings.Cut(image, "@")
	_, tag, tagged := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	if tag == "latest" || !tagged && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

func defaultVolume(v *corev1.VolumeSource) {
	switch {
	case *v == corev1.VolumeSource{}:
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	case v.Secret != nil:
		set(&v.Secret.DefaultMode, fileMode)
	case v.ConfigMap != nil:
		set(&v.ConfigMap.DefaultMode, fileMode)
	case v.DownwardAPI != nil:
		set(&v.DownwardAPI.DefaultMode, fileMode)
		defaultDownward(v.DownwardAPI.Items)
	case v.Projected != nil:
		defaultProjected(v.Projected)
	case v.HostPath != nil:
		set(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		set(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	case v.Image != nil:
		fill(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.ISCSI != nil:
		fill(&v.ISCSI.ISCSIInterface, "default")
	case v.AzureDisk != nil:
		defaultAzureDisk(v.AzureDisk)
	case v.RBD != nil:
		fill(&v.RBD.RBDPool, "rbd")
		fill(&v.RBD.RadosUser, "admin")
		fill(&v.RBD.Keyring, "/etc/ceph/keyring")
	case v.ScaleIO != nil:
		fill(&v.ScaleIO.StorageMode, "ThinProvisioned")
		fill(&v.ScaleIO.FSType, "xfs")
	}
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	set(&p.DefaultMode, fileMode)
	for i := range p.Sources {
		if token := p.Sources[i].ServiceAccountToken; token != nil {
			set(&token.ExpirationSeconds, 3600)
		}
		if downward := p.Sources[i].DownwardAPI; downward != nil {
			defaultDownward(downward.Items)
		}
	}
}

func defaultDownward(files []corev1.DownwardAPIVolumeFile) {
	for i := range files {
		if files[i].FieldRef != nil {
			fill(&files[i].FieldRef.APIVersion, "v1")
		}
	}
}

func defaultAzureDisk(d *corev1.AzureDiskVolumeSource) {
	set(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
	set(&d.Kind, corev1.AzureSharedBlobDisk)
	set(&d.FSType, "ext4")
	set(&d.ReadOnly, false)
}

func defaultController(c *corev1.ReplicationController) {
	set(&c.Spec.Replicas, 1)
	if c.Spec.Template == nil {
		return
	}
	if c.Spec.Template.Labels != nil {
		if len(c.Spec.Selector) == 0 {
			c.Spec.Selector = maps.Clone(c.Spec.Template.Labels)
		}
		if len(c.Labels) == 0 {
			c.Labels = maps.Clone(c.Spec.Template.Labels)
		}
	}
	defaultPodSpec(&c.Spec.Template.Spec)
}

func defaultNode(n *corev1.Node) {
	if n.Status.Allocatable == nil && n.Status.Capacity != nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
}
