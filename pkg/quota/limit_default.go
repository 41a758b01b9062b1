package quota

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// limitRangerAnnotation says which resources of a pod are defaults.
const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// defaultPod gives the containers of a pod the requests and limits that they
// lack, and notes which.
func defaultPod(pod *corev1.Pod, r *corev1.LimitRange) {
	defaults := corev1.ResourceRequirements{Limits: corev1.ResourceList{}, Requests: corev1.ResourceList{}}
	for i := range r.Spec.Limits {
		if item := &r.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			maps.Copy(defaults.Limits, item.Default)
			maps.Copy(defaults.Requests, item.DefaultRequest)
		}
	}
	var notes []string
	for i := range pod.Spec.Containers {
		notes = append(notes, defaultContainer(&pod.Spec.Containers[i], "container", &defaults)...)
	}
	for i := range pod.Spec.InitContainers {
		notes = append(notes, defaultContainer(&pod.Spec.InitContainers[i], "init container", &defaults)...)
	}
	if len(notes) == 0 {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(notes, "; ")
}

// defaultContainer returns notes of what it set: "cpu, memory request for
// container a".
func defaultContainer(c *corev1.Container, kind string, defaults *corev1.ResourceRequirements) []string {
	var notes []string
	if set := setMissing(&c.Resources.Requests, defaults.Requests); len(set) > 0 {
		notes = append(notes, strings.Join(set, ", ")+" request for "+kind+" "+c.Name)
	}
	if set := setMissing(&c.Resources.Limits, defaults.Limits); len(set) > 0 {
		notes = append(notes, strings.Join(set, ", ")+" limit for "+kind+" "+c.Name)
	}
	return notes
}

// setMissing adds to a list what it lacks, and returns the added names in order.
func setMissing(list *corev1.ResourceList, defaults corev1.ResourceList) []string {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(defaults)) {
		if _, ok := (*list)[name]; ok {
			continue
		}
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[name] = defaults[name].DeepCopy()
		set = append(set, string(name))
	}
	return set
}
