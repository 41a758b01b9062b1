package kube

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podState is what kubectl get prints of a pod: how many of its containers are
// ready, its state in one word, and how often its containers restarted. Init
// containers that restart always (sidecars) count like containers.
type podState struct {
	ready, total int
	status       string
	restarts     tally
}

func stateOf(p *corev1.Pod) podState {
	s := podState{total: len(p.Spec.Containers), status: cmp.Or(p.Status.Reason, string(p.Status.Phase))}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonSchedulingGated {
			s.status = corev1.PodReasonSchedulingGated
		}
	}
	if initializing := s.initContainers(p); !initializing || hasCondition(p, corev1.PodInitialized) {
		s.containers(p)
	}
	switch {
	case p.DeletionTimestamp == nil:
	case p.Status.Reason == "NodeLost":
		s.status = "Unknown"
	case p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
		s.status = "Terminating"
	}
	return s
}

// initContainers counts the init containers and tells whether one of them still runs.
func (s *podState) initContainers(p *corev1.Pod) (initializing bool) {
	sidecars := map[string]bool{}
	for _, c := range p.Spec.InitContainers {
		if value(c.RestartPolicy) == corev1.ContainerRestartPolicyAlways {
			sidecars[c.Name] = true
			s.total++
		}
	}
	var kept tally
	for i := range p.Status.InitContainerStatuses {
		c := &p.Status.InitContainerStatuses[i]
		s.restarts.add(c)
		if sidecars[c.Name] {
			kept.add(c)
			if value(c.Started) {
				if c.Ready {
					s.ready++
				}
				continue
			}
		}
		if t := c.State.Terminated; t != nil && t.ExitCode == 0 {
			continue
		}
		s.status = initState(c, i, len(p.Spec.InitContainers))
		if hasCondition(p, corev1.PodInitialized) {
			s.restarts = kept
		}
		return true
	}
	s.restarts = kept
	return false
}

func (s *podState) containers(p *corev1.Pod) {
	running := false
	for i := len(p.Status.ContainerStatuses) - 1; i >= 0; i-- {
		c := &p.Status.ContainerStatuses[i]
		s.restarts.add(c)
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			s.status = c.State.Waiting.Reason
		case c.State.Terminated != nil:
			s.status = cmp.Or(c.State.Terminated.Reason, exit(c.State.Terminated))
		case c.Ready && c.State.Running != nil:
			running = true
			s.ready++
		}
	}
	if s.status == "Completed" && running {
		s.status = "NotReady"
		if hasCondition(p, corev1.PodReady) {
			s.status = "Running"
		}
	}
}

// initState says how far the initialization of a pod is or why it ended.
func initState(c *corev1.ContainerStatus, index, of int) string {
	switch s := c.State; {
	case s.Terminated != nil:
		return "Init:" + cmp.Or(s.Terminated.Reason, exit(s.Terminated))
	case s.Waiting != nil && s.Waiting.Reason != "" && s.Waiting.Reason != "PodInitializing":
		return "Init:" + s.Waiting.Reason
	}
	return fmt.Sprintf("Init:%d/%d", index, of)
}

func exit(t *corev1.ContainerStateTerminated) string {
	if t.Signal != 0 {
		return fmt.Sprintf("Signal:%d", t.Signal)
	}
	return fmt.Sprintf("ExitCode:%d", t.ExitCode)
}

func hasCondition(p *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}

// tally counts restarts and remembers the last.
type tally struct {
	restarts int
	last     metav1.Time
}

func (t *tally) add(c *corev1.ContainerStatus) {
	t.restarts += int(c.RestartCount)
	if ended := c.LastTerminationState.Terminated; ended != nil && t.last.Before(&ended.FinishedAt) {
		t.last = ended.FinishedAt
	}
}

func (t tally) String() string {
	if t.restarts == 0 || t.last.IsZero() {
		return fmt.Sprint(t.restarts)
	}
	return fmt.Sprintf("%d (%s ago)", t.restarts, since(&t.last, unknown))
}
