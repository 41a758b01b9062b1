package quota

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
)

// list is amounts by name: list("cpu", "1", "memory", "1Mi").
func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func container(name string, requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func sidecar(name string, requests, limits corev1.ResourceList) corev1.Container {
	c := container(name, requests, limits)
	c.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return c
}

func podOf(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

func claim(requests, limits corev1.ResourceList) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{Spec: corev1.PersistentVolumeClaimSpec{
		Resources: corev1.VolumeResourceRequirements{Requests: requests, Limits: limits},
	}}
}

func TestDefaultPod(t *testing.T) {
	t.Parallel()
	both := []corev1.LimitRangeItem{
		{Type: "Pod", Max: list("cpu", "9")},
		{Type: "Container", Default: list("memory", "2Mi", "cpu", "2"), DefaultRequest: list("memory", "1Mi", "cpu", "1")},
	}
	cases := map[string]struct {
		reason    string
		limits    []corev1.LimitRangeItem
		pod, want *corev1.Pod
		note      string
	}{
		"Nothing": {
			reason: "without defaults a pod stays as it is",
			limits: both[:1], pod: podOf(container("a", nil, nil)), want: podOf(container("a", nil, nil)),
		},
		"All": {
			reason: "each container gets all it lacks, and a note says so with sorted names",
			limits: both,
			pod:    podOf(container("a", nil, nil), container("b", nil, nil)),
			want: podOf(
				container("a", list("cpu", "1", "memory", "1Mi"), list("cpu", "2", "memory", "2Mi")),
				container("b", list("cpu", "1", "memory", "1Mi"), list("cpu", "2", "memory", "2Mi"))),
			note: "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; " +
				"cpu, memory request for container b; cpu, memory limit for container b",
		},
		"Some": {
			reason: "what is given stays, zero included",
			limits: both,
			pod:    podOf(container("a", list("cpu", "0"), list("memory", "7Mi"))),
			want:   podOf(container("a", list("cpu", "0", "memory", "1Mi"), list("cpu", "2", "memory", "7Mi"))),
			note:   "LimitRanger plugin set: memory request for container a; cpu limit for container a",
		},
		"Given": {
			reason: "a pod that lacks nothing has no note",
			limits: both,
			pod:    podOf(container("a", list("cpu", "3", "memory", "3"), list("cpu", "4", "memory", "4"))),
			want:   podOf(container("a", list("cpu", "3", "memory", "3"), list("cpu", "4", "memory", "4"))),
		},
		"InitContainers": {
			reason: "they are named as such, after the containers",
			limits: []corev1.LimitRangeItem{{Type: "Container", Default: list("cpu", "2")}},
			pod: &corev1.Pod{Spec: corev1.PodSpec{
				Containers: []corev1.Container{container("a", nil, nil)}, InitContainers: []corev1.Container{container("i", nil, nil)},
			}},
			want: &corev1.Pod{Spec: corev1.PodSpec{
				Containers:     []corev1.Container{container("a", nil, list("cpu", "2"))},
				InitContainers: []corev1.Container{container("i", nil, list("cpu", "2"))},
			}},
			note: "LimitRanger plugin set: cpu limit for container a; cpu limit for init container i",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defaultPod(tc.pod, &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: tc.limits}})
			if tc.note != "" {
				tc.want.Annotations = map[string]string{limitRangerAnnotation: tc.note}
			}
			if diff := cmp.Diff(tc.want, tc.pod); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestContainerViolations(t *testing.T) {
	t.Parallel()
	item := func(least, most, ratio corev1.ResourceList) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: "Container", Min: least, Max: most, MaxLimitRequestRatio: ratio}
	}
	cases := map[string]struct {
		reason string
		item   corev1.LimitRangeItem
		obj    runtime.Object
		want   []string
	}{
		"Within": {
			reason: "bounds belong to what is allowed",
			item:   item(list("cpu", "1", "memory", "1Mi"), list("cpu", "2", "memory", "2Mi"), list("cpu", "2")),
			obj:    podOf(container("a", list("cpu", "1", "memory", "1Mi"), list("cpu", "2", "memory", "2Mi"))),
		},
		"Minimum": {
			reason: "requests and limits are compared, and a request is wanted",
			item:   item(list("cpu", "100m", "memory", "6Mi", "example.org/x", "1"), nil, nil),
			obj:    podOf(container("a", list("cpu", "100m", "memory", "4Mi"), list("cpu", "99m"))),
			want: []string{
				"minimum cpu usage per Container is 100m, but limit is 99m",
				"minimum example.org/x usage per Container is 1.  No request is specified",
				"minimum memory usage per Container is 6Mi, but request is 4Mi",
			},
		},
		"Maximum": {
			reason: "requests and limits are compared, and a limit is wanted",
			item:   item(nil, list("cpu", "1", "memory", "1Mi", "example.org/x", "1"), nil),
			obj:    podOf(container("a", list("memory", "2Mi"), list("cpu", "2", "memory", "1Mi"))),
			want: []string{
				"maximum cpu usage per Container is 1, but limit is 2",
				"maximum example.org/x usage per Container is 1.  No limit is specified",
				"maximum memory usage per Container is 1Mi, but request is 2Mi",
			},
		},
		"Ratio": {
			reason: "a ratio wants both, and neither to be zero",
			item:   item(nil, nil, list("cpu", "1500m", "memory", "2", "example.org/x", "2")),
			obj:    podOf(container("a", list("cpu", "100m", "example.org/x", "1"), list("cpu", "155m", "memory", "1", "example.org/x", "0"))),
			want: []string{
				"cpu max limit to request ratio per Container is 1500m, but provided ratio is 1.550000",
				"example.org/x max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
				"memory max limit to request ratio per Container is 2, but no request is specified or request is 0",
			},
		},
		"Every": {
			reason: "each container is checked, init containers and sidecars too",
			item:   item(nil, list("cpu", "1"), nil),
			obj: &corev1.Pod{Spec: corev1.PodSpec{
				Containers:     []corev1.Container{container("a", nil, list("cpu", "2")), container("b", nil, list("cpu", "3"))},
				InitContainers: []corev1.Container{container("i", nil, list("cpu", "4")), sidecar("s", nil, list("cpu", "5"))},
			}},
			want: []string{
				"maximum cpu usage per Container is 1, but limit is 2",
				"maximum cpu usage per Container is 1, but limit is 3",
				"maximum cpu usage per Container is 1, but limit is 4",
				"maximum cpu usage per Container is 1, but limit is 5",
			},
		},
		"Large": {
			reason: "what does not fit into thousandths is compared as it is",
			item:   item(nil, list("memory", "1Ei"), list("memory", "1")),
			obj:    podOf(container("a", list("memory", "1Ei"), list("memory", "2Ei"))),
			want: []string{
				"maximum memory usage per Container is 1Ei, but limit is 2Ei",
				"memory max limit to request ratio per Container is 1, but provided ratio is 2.000000",
			},
		},
		"Claim": {
			reason: "a claim has no containers",
			item:   item(list("storage", "1Gi"), nil, nil),
			obj:    claim(list("storage", "1"), nil),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(violations(&tc.item, tc.obj))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPodAndClaimViolations(t *testing.T) {
	t.Parallel()
	cpu := func(amount string) corev1.ResourceList { return list("cpu", amount) }
	pod := func(level *corev1.ResourceRequirements, containers []corev1.Container, initial ...corev1.Container) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers, InitContainers: initial, Resources: level}}
	}
	two := []corev1.Container{container("a", cpu("1"), cpu("2")), container("b", cpu("2"), cpu("3"))}
	exactly := func(requests, limits string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: "Pod", Min: cpu(requests), Max: cpu(limits)}
	}
	below, above := exactly("100", "100"), exactly("0", "0")
	cases := map[string]struct {
		reason string
		item   corev1.LimitRangeItem
		obj    runtime.Object
		want   []string
	}{
		"SumOfRequests": {
			reason: "containers run together", item: below, obj: pod(nil, two),
			want: []string{"minimum cpu usage per Pod is 100, but request is 3"},
		},
		"SumOfLimits": {
			reason: "containers run together", item: above, obj: pod(nil, two),
			want: []string{"maximum cpu usage per Pod is 0, but limit is 5"},
		},
		"InitContainersBelow": {
			reason: "they run before, one by one", item: above, obj: pod(nil, two, container("i", nil, cpu("4")), container("j", nil, cpu("5"))),
			want: []string{"maximum cpu usage per Pod is 0, but limit is 5"},
		},
		"InitContainersAbove": {
			reason: "the largest counts", item: above, obj: pod(nil, two, container("i", nil, cpu("4")), container("j", nil, cpu("7"))),
			want: []string{"maximum cpu usage per Pod is 0, but limit is 7"},
		},
		"Sidecars": {
			reason: "they run on beside the containers", item: above, obj: pod(nil, two, sidecar("s", nil, cpu("4"))),
			want: []string{"maximum cpu usage per Pod is 0, but limit is 9"},
		},
		"InitContainerAfterSidecars": {
			reason: "it runs beside the sidecars that came before it, not those after it", item: above,
			obj:  pod(nil, two, sidecar("s", nil, cpu("1")), container("i", nil, cpu("8")), sidecar("u", nil, cpu("1"))),
			want: []string{"maximum cpu usage per Pod is 0, but limit is 9"},
		},
		"PodLevel": {
			reason: "what the pod says of itself replaces the sum of cpu and memory", item: above,
			obj:  pod(&corev1.ResourceRequirements{Limits: cpu("1")}, two),
			want: []string{"maximum cpu usage per Pod is 0, but limit is 1"},
		},
		"PodRatio": {
			reason: "sums are compared", item: corev1.LimitRangeItem{Type: "Pod", MaxLimitRequestRatio: cpu("1")}, obj: pod(nil, two),
			want: []string{"cpu max limit to request ratio per Pod is 1, but provided ratio is 1.666667"},
		},
		"Unlimited": {
			reason: "a maximum wants a limit", item: corev1.LimitRangeItem{Type: "Pod", Max: list("memory", "1Mi")}, obj: pod(nil, two),
			want: []string{"maximum memory usage per Pod is 1Mi.  No limit is specified"},
		},
		"ClaimWithin": {
			reason: "limits of a claim mean nothing",
			item:   corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Min: list("storage", "1Gi"), Max: list("storage", "2Gi")},
			obj:    claim(list("storage", "2Gi"), list("storage", "9Gi")),
		},
		"ClaimTooSmall": {
			reason: "requests are compared",
			item:   corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Min: list("storage", "1Gi"), Max: list("storage", "2Gi")},
			obj:    claim(list("storage", "1Mi"), nil),
			want:   []string{"minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 1Mi"},
		},
		"ClaimTooLarge": {
			reason: "requests are compared",
			item:   corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Min: list("storage", "1Gi"), Max: list("storage", "2Gi", "x", "1")},
			obj:    claim(list("storage", "3Gi"), nil),
			want: []string{
				"maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi",
				"maximum x usage per PersistentVolumeClaim is 1.  No request is specified",
			},
		},
		"PodIsNoClaim": {
			reason: "items of claims are not for pods",
			item:   corev1.LimitRangeItem{Type: "PersistentVolumeClaim", Min: cpu("100")}, obj: pod(nil, two),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, texts(violations(&tc.item, tc.obj))); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func texts(errs []error) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

func TestIsLimited(t *testing.T) {
	t.Parallel()
	gone := claim(nil, nil)
	gone.DeletionTimestamp = &metav1.Time{}
	cases := map[string]struct {
		reason      string
		obj, old    runtime.Object
		subresource string
		operation   admission.Operation
		want        bool
	}{
		"CreatePod":    {reason: "resources are given then", obj: podOf(), operation: admission.Create, want: true},
		"UpdatePod":    {reason: "resources cannot change", obj: podOf(), old: podOf(), operation: admission.Update},
		"PodStatus":    {reason: "it is a subresource", obj: podOf(), operation: admission.Create, subresource: "status"},
		"CreateClaim":  {reason: "the size is given then", obj: claim(nil, nil), operation: admission.Create, want: true},
		"UpdateClaim":  {reason: "claims grow", obj: claim(nil, nil), old: claim(nil, nil), operation: admission.Update, want: true},
		"DeletedClaim": {reason: "it must be able to go", obj: gone, old: gone, operation: admission.Update},
		"ClaimStatus":  {reason: "it is a subresource", obj: gone, operation: admission.Update, subresource: "status"},
		"Others":       {reason: "they have no resources", obj: &corev1.ConfigMap{}, operation: admission.Create},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := admission.NewAttributesRecord(tc.obj, tc.old, corev1.SchemeGroupVersion.WithKind(""), "ns", "name",
				corev1.SchemeGroupVersion.WithResource(""), tc.subresource, tc.operation, nil, false, nil)
			if got := isLimited(a); got != tc.want {
				t.Errorf("%s: got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
