package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"
)

// resources finds the resource of any object.
type resources struct {
	t      *testing.T
	client dynamic.Interface
	groups []*restmapper.APIGroupResources
}

func resourcesOf(t *testing.T, config *rest.Config) *resources {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	known, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := restmapper.GetAPIGroupResources(known)
	if err != nil {
		t.Fatal(err)
	}
	return &resources{t: t, client: client, groups: groups}
}

func (r *resources) of(object *unstructured.Unstructured) dynamic.ResourceInterface {
	r.t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := restmapper.NewDiscoveryRESTMapper(r.groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.client.Resource(mapping.Resource).Namespace(object.GetNamespace()) // which is empty for one that is in none
}

// try creates an object without storing it, if the server knows each of its fields.
func (r *resources) try(object *unstructured.Unstructured) error {
	options := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
	_, err := r.of(object).Create(r.t.Context(), object, options)
	return err
}

// TestObjects: a server takes every object that the chart renders, and knows each of its fields.
func TestObjects(t *testing.T) {
	t.Parallel()
	s := cluster(t)
	r := resourcesOf(t, s.config(t))
	space := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}}
	spaces := r.client.Resource(corev1.SchemeGroupVersion.WithResource("namespaces"))
	if _, err := spaces.Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, values := range samples(t) {
		t.Run(name, func(t *testing.T) {
			for _, object := range render(t, "--values", values) {
				if object.GetNamespace() != namespace {
					t.Errorf("%s %s is in namespace %q", object.GetKind(), object.GetName(), object.GetNamespace())
				}
				r.takes(t, object)
			}
		})
	}
}

// takes wants the server to take an object, and to find a misspelt field in it.
func (r *resources) takes(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	what := object.GetKind() + " " + object.GetName()
	if err := r.try(object); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	section := "spec"
	if _, has := object.Object[section]; !has {
		section = "metadata"
	}
	if err := unstructured.SetNestedField(object.Object, "a", section, "misspelt"); err != nil {
		t.Fatal(err)
	}
	if err := r.try(object); err == nil || !strings.Contains(err.Error(), `unknown field "`+section+`.misspelt"`) {
		t.Errorf("%s with a misspelt field: %v", what, err)
	}
}

// TestPod: the pod may do nothing that the server does not need, and never runs twice.
func TestPod(t *testing.T) {
	t.Parallel()
	objects := render(t)
	var set appsv1.StatefulSet
	objects.into(t, "StatefulSet", &set)
	template := set.Spec.Template.Spec
	no, user := false, int64(65532)
	policy, yes := corev1.FSGroupChangeOnRootMismatch, true
	if diff := cmp.Diff(&corev1.PodSecurityContext{
		RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, FSGroup: &user, FSGroupChangePolicy: &policy,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}, template.SecurityContext); diff != "" {
		t.Errorf("security of the pod (-want +got):\n%s", diff)
	}
	container := template.Containers[0]
	if diff := cmp.Diff(&corev1.SecurityContext{
		AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
	}, container.SecurityContext); diff != "" {
		t.Errorf("security of the container (-want +got):\n%s", diff)
	}
	var account corev1.ServiceAccount
	objects.into(t, "ServiceAccount", &account)
	for what, value := range map[string]*bool{
		"a token in the pod": template.AutomountServiceAccountToken, "a token of the account": account.AutomountServiceAccountToken,
		"variables of Services": template.EnableServiceLinks,
	} {
		if value == nil || *value {
			t.Errorf("the pod has %s", what)
		}
	}
	if account.Name != template.ServiceAccountName {
		t.Errorf("the pod has account %s, the chart makes %s", template.ServiceAccountName, account.Name)
	}
	if *set.Spec.Replicas != 1 || set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
		t.Errorf("%d replicas, updated by %s", *set.Spec.Replicas, set.Spec.UpdateStrategy.Type)
	}
	if image := container.Image; image != "sailplane:"+appVersion(t) {
		t.Errorf("the image is %s", image)
	}
	if grace := *template.TerminationGracePeriodSeconds; grace != 90 {
		t.Errorf("the pod has %d s to stop, want the minute of the drain and half of one", grace)
	}
	// The image has these, see config/container/Containerfile and TestImage in test/ship.
	containerfile := read(t, repository(t), "config", "container", "Containerfile")
	for _, want := range []string{"USER 65532:65532\n", "EXPOSE 6443\n", "VOLUME /var/lib/sailplane\n"} {
		if !strings.Contains(containerfile, want) {
			t.Errorf("the image has no %q", want)
		}
	}
	// The Service leads to the pod.
	var service corev1.Service
	objects.into(t, "Service", &service)
	if diff := cmp.Diff(service.Spec.Selector, set.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("the Service selects something else (-Service +StatefulSet):\n%s", diff)
	}
	for name, value := range service.Spec.Selector {
		if set.Spec.Template.Labels[name] != value {
			t.Errorf("the pod has no label %s=%s", name, value)
		}
	}
	if port := portOf(t, container, service.Spec.Ports[0].TargetPort.StrVal); port != listensAt(t, objects) {
		t.Errorf("the Service leads to port %d", port)
	}
}

// TestReplicas: several servers find the key that they share, and stop when the Service has forgotten them.
func TestReplicas(t *testing.T) {
	t.Parallel()
	flags := []string{"--set=replicas=3,config.storage.url=postgres://shop@db/shop,sharing.existingSecret=together"}
	objects := render(t, flags...)
	var set appsv1.StatefulSet
	objects.into(t, "StatefulSet", &set)
	if *set.Spec.Replicas != 3 {
		t.Errorf("%d replicas", *set.Spec.Replicas)
	}
	hook := set.Spec.Template.Spec.Containers[0].Lifecycle
	if hook == nil || hook.PreStop == nil || hook.PreStop.Sleep == nil || hook.PreStop.Sleep.Seconds != 5 {
		t.Errorf("the pod stops while the Service leads to it: %+v", hook)
	}
	p := podOf(t, objects, map[string]map[string]string{"together": {"key": strings.Repeat("0123456789abcdef", 4) + "\n"}})
	if out, err := p.command("--check").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	old := render(t, append(flags, "--kube-version=1.29.0")...) // its API has no such hook
	var without appsv1.StatefulSet
	old.into(t, "StatefulSet", &without)
	if hook := without.Spec.Template.Spec.Containers[0].Lifecycle; hook != nil {
		t.Errorf("a cluster of 1.29 is given %+v", hook)
	}
}

// TestBudget: a budget that blocks says so, and one that may be evicted does not.
func TestBudget(t *testing.T) {
	t.Parallel()
	if render(t).of(t, "PodDisruptionBudget") != nil {
		t.Error("there is a budget by default, which blocks the drain of a node")
	}
	for name, want := range map[string]int{"everything": 0, "self-signed": 1} {
		var budget policyv1.PodDisruptionBudget
		render(t, "--values", samples(t)[name]).into(t, "PodDisruptionBudget", &budget)
		if got := budget.Spec.MaxUnavailable.IntValue(); got != want {
			t.Errorf("%s: maxUnavailable is %d, want %d", name, got, want)
		}
	}
}

// appVersion is the version in Chart.yaml.
func appVersion(t *testing.T) string {
	t.Helper()
	var chart struct{ AppVersion string }
	if err := yaml.Unmarshal([]byte(read(t, folder(t), "Chart.yaml")), &chart); err != nil || chart.AppVersion == "" {
		t.Fatalf("Chart.yaml has version %q: %v", chart.AppVersion, err)
	}
	return chart.AppVersion
}

// TestMonitoring: a chart that was packaged has the alerts and the dashboard of config/monitoring, and the
// ServiceMonitor gives the series the job that they are for.
func TestMonitoring(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := helm(t, os.DevNull, "package", folder(t), "--destination", dir); err != nil {
		t.Fatal(err)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "sailplane-*.tgz"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("%v, %v", packages, err)
	}
	out, err := template(t, packages[0], "--values", samples(t)["everything"])
	if err != nil {
		t.Fatal(err)
	}
	objects := decode(t, out)
	alerts, want := read(t, repository(t), "config", "monitoring", "alerts.yaml"), map[string]any{}
	if err := yaml.Unmarshal([]byte(alerts), &want); err != nil {
		t.Fatal(err)
	}
	rule := objects.of(t, "PrometheusRule")
	if diff := cmp.Diff(want, rule.Object["spec"]); diff != "" {
		t.Errorf("alerts (-want +got):\n%s", diff)
	}
	found := false
	for _, object := range objects {
		if text, has, _ := unstructured.NestedString(object.Object, "data", "sailplane.json"); has {
			found = true
			if diff := cmp.Diff(read(t, repository(t), "config", "monitoring", "dashboard.json"), text); diff != "" {
				t.Errorf("dashboard (-want +got):\n%s", diff)
			}
			if labels := object.GetLabels(); labels["dashboards"] != "yes" {
				t.Errorf("the dashboard has the labels %v", labels)
			}
		}
	}
	if !found {
		t.Error("there is no dashboard")
	}
	monitor, err := yaml.Marshal(objects.of(t, "ServiceMonitor").Object)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(monitor), "- replacement: sailplane\n      targetLabel: job\n") || !strings.Contains(alerts, `{job="sailplane"}`) {
		t.Errorf("the alerts are not for the job of the ServiceMonitor:\n%s", monitor)
	}
}
