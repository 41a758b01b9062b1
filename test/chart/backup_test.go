package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// withBackups are values that have backups taken.
const withBackups = "--set=backup.schedule=@daily,backup.kubeconfigSecret.name=sailplane-backup,backup.volume.persistentVolumeClaim.claimName=a"

// TestBackupPod: the pod that takes backups may do nothing that it does not need, and gets no requests of clients.
func TestBackupPod(t *testing.T) {
	t.Parallel()
	if render(t).of(t, "CronJob") != nil {
		t.Error("there is a CronJob by default")
	}
	objects := render(t, withBackups, "--set=networkPolicy.enabled=true", "--set-json=networkPolicy.from=[{\"podSelector\":{}}]")
	var job batchv1.CronJob
	var set appsv1.StatefulSet
	var service corev1.Service
	var policy networkingv1.NetworkPolicy
	objects.into(t, "CronJob", &job)
	objects.into(t, "StatefulSet", &set)
	objects.into(t, "Service", &service)
	objects.into(t, "NetworkPolicy", &policy)
	if job.Spec.ConcurrencyPolicy != batchv1.ForbidConcurrent || job.Spec.StartingDeadlineSeconds == nil ||
		job.Spec.SuccessfulJobsHistoryLimit == nil || job.Spec.FailedJobsHistoryLimit == nil || job.Spec.JobTemplate.Spec.ActiveDeadlineSeconds == nil {
		t.Errorf("it may run twice, late, for long, or leave many Jobs: %+v", job.Spec)
	}
	pod := job.Spec.JobTemplate.Spec.Template
	server := set.Spec.Template
	for what, is := range map[string]bool{
		"a token":               pod.Spec.AutomountServiceAccountToken == nil || *pod.Spec.AutomountServiceAccountToken,
		"variables of Services": pod.Spec.EnableServiceLinks == nil || *pod.Spec.EnableServiceLinks,
		"no account":            pod.Spec.ServiceAccountName == "",
		"another image":         pod.Spec.Containers[0].Image != server.Spec.Containers[0].Image,
		"the labels of the server, so the Service leads there":   labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(pod.Labels)),
		"no labels by which the policy lets it reach the server": !admits(&policy, pod.Labels),
	} {
		if is {
			t.Errorf("the pod has %s", what)
		}
	}
	if diff := cmp.Diff(server.Spec.SecurityContext, pod.Spec.SecurityContext); diff != "" {
		t.Errorf("security of the pod (-server +backup):\n%s", diff)
	}
	if diff := cmp.Diff(server.Spec.Containers[0].SecurityContext, pod.Spec.Containers[0].SecurityContext); diff != "" {
		t.Errorf("security of the container (-server +backup):\n%s", diff)
	}
	// A CronJob may have 52 characters, and the names of labels 63.
	long := render(t, withBackups, "--set=fullnameOverride="+strings.Repeat("a", 60)+",nameOverride="+strings.Repeat("b", 70))
	long.into(t, "CronJob", &job)
	if len(job.Name) > 52 || !strings.HasSuffix(job.Name, "-backup") {
		t.Errorf("the CronJob is called %s", job.Name)
	}
	for name, value := range job.Spec.JobTemplate.Spec.Template.Labels {
		if len(value) > 63 {
			t.Errorf("label %s=%s", name, value)
		}
	}
}

// admits tells whether a policy names pods with such labels by more than their namespace.
func admits(policy *networkingv1.NetworkPolicy, of map[string]string) bool {
	for _, rule := range policy.Spec.Ingress {
		for _, from := range rule.From {
			if from.PodSelector != nil && len(from.PodSelector.MatchLabels) > 0 && labels.SelectorFromSet(from.PodSelector.MatchLabels).Matches(labels.Set(of)) {
				return true
			}
		}
	}
	return false
}

// takes runs the pod of a CronJob until the user may, and wants so many backups in its volume afterwards.
func takes(t *testing.T, p *pod, want int) {
	t.Helper()
	eventually(t, "the binding of the user counts", func() bool {
		cmd := p.command()
		out, err := cmd.CombinedOutput()
		if err != nil && !strings.Contains(string(out), "may not get the backup") {
			t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
		}
		return err == nil
	})
	files, err := filepath.Glob(filepath.Join(p.folders["/backups"], "sailplane-*.backup"))
	if err != nil || len(files) != want {
		t.Fatalf("there are the backups %v, want %d: %v", files, want, err)
	}
	newest := files[len(files)-1]
	stat, err := os.Stat(newest)
	if err != nil {
		t.Fatal(err)
	}
	if stat.Mode().Perm() != 0o600 || os.Geteuid() == 0 && int64(stat.Sys().(*syscall.Stat_t).Uid) != *p.security.RunAsUser {
		t.Errorf("%s has mode %v, and is %+v", newest, stat.Mode(), stat.Sys())
	}
	if out, err := exec.Command(sailplane, "backup", "--list="+newest).CombinedOutput(); err != nil || !strings.Contains(string(out), "namespaces ") {
		t.Errorf("--list: %v\n%s", err, out)
	}
}

// TestBackups has backups taken as the CronJob does, by a user who may do nothing else, and as many kept as the values say.
func TestBackups(t *testing.T) {
	t.Parallel()
	inner := podOf(t, render(t), nil)
	s := start(t, inner.command("--listen=127.0.0.1:0"))
	kubectlOutput(t, s, "--server="+s.url, "create", "clusterrole", "backup", "--verb=get", "--non-resource-url=/backup")
	kubectlOutput(t, s, "--server="+s.url, "create", "clusterrolebinding", "backup", "--clusterrole=backup", "--user=backup")
	kubeconfig, err := exec.Command(sailplane, "kubeconfig", "--data-dir="+inner.folders["/var/lib/sailplane"], "--user=backup", "--server="+s.url).Output()
	if err != nil {
		t.Fatal(err)
	}
	objects := render(t, withBackups, "--set=backup.keep=2")
	var job batchv1.CronJob
	objects.into(t, "CronJob", &job)
	p := prepare(t, &job.Spec.JobTemplate.Spec.Template.Spec, nil, map[string]map[string]string{"sailplane-backup": {"kubeconfig": string(kubeconfig)}})
	for day := range 3 {
		write(t, filepath.Join(p.folders["/backups"], fmt.Sprintf("sailplane-2025010%dT000000Z.backup", day+1)), "")
	}
	takes(t, p, 2)
}
