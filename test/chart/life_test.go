package chart

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// controller does what the controller of StatefulSets and a kubelet do, as far as helm sees it:
// pods are ready at once.
func controller(t *testing.T, client kubernetes.Interface) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	sets, err := client.AppsV1().StatefulSets(metav1.NamespaceAll).Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range sets.ResultChan() {
			set, is := event.Object.(*appsv1.StatefulSet)
			if !is || set.Status.ObservedGeneration == set.Generation {
				continue
			}
			n, revision := *set.Spec.Replicas, set.Name+"-"+set.Spec.Template.Annotations["sailplane.dev/config-that-needs-a-restart"]
			set.Status = appsv1.StatefulSetStatus{
				ObservedGeneration: set.Generation, Replicas: n, ReadyReplicas: n, CurrentReplicas: n, UpdatedReplicas: n,
				AvailableReplicas: n, CurrentRevision: revision, UpdateRevision: revision,
			}
			_, err := client.AppsV1().StatefulSets(set.Namespace).UpdateStatus(ctx, set, metav1.UpdateOptions{})
			// Who wrote meanwhile, or deleted it, is the next event.
			if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				t.Errorf("status of StatefulSet %s: %v", set.Name, err)
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		sets.Stop()
		<-done
	})
}

// TestLife installs the chart, changes it, goes back and removes it. helm waits until the server is ready.
func TestLife(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	client, err := kubernetes.NewForConfig(s.config(t))
	if err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) string {
		t.Helper()
		out, err := helm(t, s.kubeconfig, append(args, "--namespace", namespace)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	const name = release + "-sailplane"
	sets, configs := client.AppsV1().StatefulSets(namespace), client.CoreV1().ConfigMaps(namespace)
	now := func() (set *appsv1.StatefulSet, config string) {
		t.Helper()
		set, err := sets.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		file, err := configs.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return set, file.Data["server.yaml"]
	}
	// Nobody makes the pod: it is not ready, and helm says so.
	_, err = helm(t, s.kubeconfig, "install", release, folder(t), "--namespace", namespace, "--create-namespace", "--wait", "--timeout=2s")
	if err == nil {
		t.Fatal("helm did not wait for the StatefulSet")
	}
	do("uninstall", release)

	controller(t, client)
	do("install", release, folder(t), "--wait", "--timeout=10m", "--values", samples(t)["self-signed"], "--set=config.limits.burst=100")
	first, before := now()
	if first.Status.ReadyReplicas != 1 {
		t.Errorf("after the installation the status is %+v", first.Status)
	}
	upgrade := func(flags ...string) {
		t.Helper()
		do(append([]string{"upgrade", release, folder(t), "--reuse-values", "--wait", "--timeout=10m"}, flags...)...)
	}
	upgrade("--set=config.limits.burst=200")
	second, after := now()
	if after == before || second.Generation != first.Generation {
		t.Errorf("a limit, which the server follows: the StatefulSet had generation %d and has %d, and the file was\n%sand is\n%s",
			first.Generation, second.Generation, before, after)
	}
	upgrade("--set=config.garbageCollection=false")
	if third, _ := now(); third.Generation == second.Generation || third.Status.ObservedGeneration != third.Generation {
		t.Errorf("a setting that needs a restart: generation %d, and that of the pod is %d", third.Generation, third.Status.ObservedGeneration)
	}
	do("rollback", release, "1", "--wait", "--timeout=10m")
	back, config := now()
	if config != before || back.Spec.Template.String() != first.Spec.Template.String() {
		t.Errorf("after the rollback the file is\n%sand was\n%s", config, before)
	}
	upgrade("--set=replicas=0")
	if stopped, _ := now(); stopped.Status.Replicas != 0 {
		t.Errorf("the server was stopped, and the status is %+v", stopped.Status)
	}
	do("uninstall", release, "--wait")
	left := kubectlOutput(t, s, "get", "all,configmaps,secrets,serviceaccounts,networkpolicies,poddisruptionbudgets,"+
		"servicemonitors,prometheusrules,certificates,issuers,cronjobs", "--namespace", namespace,
		"--selector=app.kubernetes.io/instance="+release, "--output=name")
	if left != "" {
		t.Errorf("after it was removed there are\n%s", left)
	}
}

// kubectlOutput runs kubectl on a cluster.
func kubectlOutput(t *testing.T, s *server, args ...string) string {
	t.Helper()
	cmd := exec.Command("kubectl", append([]string{"--kubeconfig=" + s.kubeconfig, "--cache-dir=" + t.TempDir()}, args...)...)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl %v: %v\n%s", args, err, &log)
	}
	return string(out)
}
