package kube

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func TestPodState(t *testing.T) {
	t.Parallel()
	always := corev1.ContainerRestartPolicyAlways
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	// Half an hour off, as some time passes before it is printed.
	ago := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(time.Now().Add(-30*time.Hour - 30*time.Minute))}}
	two := []corev1.Container{{Name: "a"}, {Name: "b"}}
	cases := map[string]struct {
		reason string
		pod    corev1.Pod
		want   []any
	}{
		"pending": {
			reason: "nobody reported yet",
			pod:    corev1.Pod{Spec: corev1.PodSpec{Containers: two}, Status: corev1.PodStatus{Phase: corev1.PodPending}},
			want:   []any{"0/2", "Pending", "0"},
		},
		"running": {
			reason: "one container is ready, the other began again",
			pod: corev1.Pod{Spec: corev1.PodSpec{Containers: two}, Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "a", Ready: true, State: running}, {Name: "b", RestartCount: 3, State: running, LastTerminationState: ago},
			}}},
			want: []any{"1/2", "Running", "3 (30h ago)"},
		},
		"crash": {
			reason: "why a container waits says more than the phase",
			pod: corev1.Pod{Spec: corev1.PodSpec{Containers: two[:1]}, Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "a", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}},
			}}},
			want: []any{"0/1", "CrashLoopBackOff", "0"},
		},
		"initializing": {
			reason: "the second init container runs, and a sidecar is ready",
			pod: corev1.Pod{
				Spec: corev1.PodSpec{Containers: two[:1], InitContainers: []corev1.Container{{Name: "s", RestartPolicy: &always}, {Name: "i"}}},
				Status: corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "s", Ready: true, Started: ptr.To(true), State: running}, {Name: "i", State: running},
				}},
			},
			want: []any{"1/2", "Init:1/2", "0"},
		},
		"init failed": {
			reason: "a code stands for a missing reason",
			pod: corev1.Pod{
				Spec: corev1.PodSpec{Containers: two[:1], InitContainers: []corev1.Container{{Name: "i"}}},
				Status: corev1.PodStatus{Phase: corev1.PodFailed, InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "i", State: ended(2, "")},
				}},
			},
			want: []any{"0/1", "Init:ExitCode:2", "0"},
		},
		"terminating": {
			reason: "it is being deleted",
			pod: corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}}, Spec: corev1.PodSpec{Containers: two[:1]},
				Status: corev1.PodStatus{Phase: corev1.PodRunning},
			},
			want: []any{"0/1", "Terminating", "0"},
		},
		"completed": {
			reason: "it ended well",
			pod: corev1.Pod{Spec: corev1.PodSpec{Containers: two[:1]}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{
				{Name: "a", State: ended(0, "Completed")},
			}}},
			want: []any{"0/1", "Completed", "0"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, podRow(&tc.pod)[:3]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPullPolicy(t *testing.T) {
	t.Parallel()
	cases := map[string]corev1.PullPolicy{
		"i": corev1.PullAlways, "i:latest": corev1.PullAlways, "r:5000/i": corev1.PullAlways, "r:5000/a/i:latest": corev1.PullAlways,
		"i:v1": corev1.PullIfNotPresent, "r:5000/i:v1": corev1.PullIfNotPresent,
		"i@sha256:00": corev1.PullIfNotPresent, "r:5000/i:v1@sha256:00": corev1.PullIfNotPresent,
	}
	for image, want := range cases {
		if got := pullPolicy(image); got != want {
			t.Errorf("pull policy of %s: got %s, want %s", image, got, want)
		}
	}
}
