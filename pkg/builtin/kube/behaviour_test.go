package kube_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

func clients(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func deployment(name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
}

func simplePod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func protobuf(t *testing.T, config *rest.Config) {
	binary := rest.CopyConfig(config)
	binary.ContentType, binary.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	deployments := clients(t, binary).AppsV1().Deployments("protobuf")
	watch, err := deployments.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := deployments.Create(t.Context(), deployment("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	event := <-watch.ResultChan()
	if d, ok := event.Object.(*appsv1.Deployment); !ok || d.Name != "a" || *d.Spec.Replicas != 1 {
		t.Errorf("a watch in protobuf tells of the deployment: got %v", event)
	}
}

func apply(t *testing.T, config *rest.Config) {
	deployments := clients(t, config).AppsV1().Deployments("apply")
	write := func(manager, container string) *appsv1.Deployment {
		t.Helper()
		body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},` +
			`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"` + container + `","image":"i",` +
			`"ports":[{"containerPort":80}]}]}}}}`
		d, err := deployments.Patch(t.Context(), "a", types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	write("one", "first")
	d := write("two", "second")
	var names []string
	for _, c := range d.Spec.Template.Spec.Containers {
		names = append(names, c.Name)
	}
	if diff := cmp.Diff([]string{"first", "second"}, names); diff != "" {
		t.Errorf("containers of two managers merge by name (-want +got):\n%s", diff)
	}
	if d = write("one", "third"); len(d.Spec.Template.Spec.Containers) != 2 {
		t.Errorf("a manager that no longer names its container removes it: %v", d.Spec.Template.Spec.Containers)
	}
	if again := write("one", "third"); again.ResourceVersion != d.ResourceVersion {
		t.Error("an apply that changes nothing writes nothing")
	}
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"second","image":"j"}]}}}}`)
	d, err := deployments.Patch(t.Context(), "a", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Spec.Template.Spec.Containers) != 2 {
		t.Errorf("a strategic merge patch merges by name as well: %v", d.Spec.Template.Spec.Containers)
	}
}

func scale(t *testing.T, config *rest.Config) {
	client := clients(t, config)
	ctx, deployments := t.Context(), client.AppsV1().Deployments("scale")
	if _, err := deployments.Create(ctx, deployment("a"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err := deployments.GetScale(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Spec.Replicas != 1 || s.Status.Selector != "a=b" {
		t.Errorf("scale of a deployment: got %+v", s)
	}
	s.Spec.Replicas = 4
	if _, err := deployments.UpdateScale(ctx, "a", s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	d, err := deployments.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || *d.Spec.Replicas != 4 || d.Generation != 2 {
		t.Errorf("scale sets the replicas, which is a change of the spec: got %v, %v", d, err)
	}
	controller := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ReplicationControllerSpec{Template: &deployment("a").Spec.Template},
	}
	if _, err := client.CoreV1().ReplicationControllers("scale").Create(ctx, controller, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s, err = client.CoreV1().ReplicationControllers("scale").GetScale(ctx, "a", metav1.GetOptions{})
	if err != nil || s.Status.Selector != "a=b" {
		t.Errorf("scale of a replication controller: got %v, %v", s, err)
	}
}

func status(t *testing.T, config *rest.Config) {
	client := clients(t, config)
	d := deployment("a")
	d.Status.Replicas = 7
	d, err := client.AppsV1().Deployments("status").Create(t.Context(), d, metav1.CreateOptions{})
	if err != nil || d.Status.Replicas != 0 {
		t.Fatalf("a new deployment has no status: got %v, %v", d, err)
	}
	d.Status.Replicas, d.Spec.Paused = 7, true
	d, err = client.AppsV1().Deployments("status").UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
	if err != nil || d.Status.Replicas != 7 || d.Spec.Paused || d.Generation != 1 {
		t.Errorf("status is written by itself: got %v, %v", d, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "status"}}
	node.Status.NodeInfo.KubeletVersion = "v1"
	node, err = client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil || node.Status.NodeInfo.KubeletVersion != "v1" {
		t.Errorf("a kubelet registers with its status: got %v, %v", node, err)
	}
	_ = client.CoreV1().Nodes().Delete(t.Context(), "status", metav1.DeleteOptions{})
}

func selectors(t *testing.T, config *rest.Config) {
	pods := clients(t, config).CoreV1().Pods("selectors")
	for _, name := range []string{"a", "b"} {
		p := simplePod(name)
		p.Spec.NodeName = "node-" + name
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=node-a,status.phase!=Running"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "a" {
		t.Errorf("pods are selected by node: got %v, %v", list, err)
	}
	_, err = pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.colour=red"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("other fields are refused: got %v", err)
	}
}

func graceful(t *testing.T, config *rest.Config) {
	pods := clients(t, config).CoreV1().Pods("graceful")
	for name, node := range map[string]string{"waiting": "", "running": "n"} {
		p := simplePod(name)
		p.Spec.NodeName = node
		if _, err := pods.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := pods.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pods.Get(t.Context(), "waiting", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a pod without a node is gone: got %v", err)
	}
	p, err := pods.Get(t.Context(), "running", metav1.GetOptions{})
	if err != nil || p.DeletionTimestamp == nil || *p.DeletionGracePeriodSeconds != 30 {
		t.Fatalf("a pod on a node gets time to end: got %v, %v", p, err)
	}
	if err := pods.Delete(t.Context(), "running", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Get(t.Context(), "running", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("its kubelet ends it: got %v", err)
	}
}

func openAPI(t *testing.T, config *rest.Config) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	paths, err := client.OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]string{
		"api/v1": "io.k8s.api.core.v1.Pod", "apis/apps/v1": "io.k8s.api.apps.v1.Deployment", "apis/batch/v1": "io.k8s.api.batch.v1.Job",
		"apis/resource.k8s.io/v1": "io.k8s.api.resource.v1.ResourceSlice", "apis/autoscaling/v2": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
	} {
		document, ok := paths[path]
		if !ok {
			t.Errorf("there is no OpenAPI document %s", path)
			continue
		}
		body, err := document.Schema("application/json")
		if err != nil || !strings.Contains(string(body), `"`+kind+`":`) {
			t.Errorf("document %s has no %s: %v", path, kind, err)
		}
	}
	if _, err := client.OpenAPISchema(); err != nil {
		t.Errorf("OpenAPI v2: %v", err)
	}
}

// generation has what counts its changes, as Kubernetes does.
func generation(t *testing.T, config *rest.Config) {
	client := clients(t, config)
	pod, err := client.CoreV1().Pods("generation").Create(t.Context(), simplePod("a"), metav1.CreateOptions{})
	if err != nil || pod.Generation != 1 {
		t.Errorf("a pod has a generation: got %v, %v", pod, err)
	}
	node, err := client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "generation"}}, metav1.CreateOptions{})
	if err != nil || node.Generation != 0 {
		t.Errorf("a node has none: got %v, %v", node, err)
	}
	_ = client.CoreV1().Nodes().Delete(t.Context(), "generation", metav1.DeleteOptions{})
	// Since 1.37, an autoscaler has one.
	scaler, err := try(t, config, autoscalers, minimal["horizontalpodautoscalers.autoscaling"])
	if err != nil || scaler.GetGeneration() != 1 {
		t.Errorf("an autoscaler has a generation: got %v, %v", scaler, err)
	}
	verbs := map[string]bool{}
	list, err := client.Discovery().ServerResourcesForGroupVersion("apps/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list.APIResources {
		verbs[r.Name] = slices.Contains(r.Verbs, "deletecollection")
	}
	if !verbs["deployments"] {
		t.Errorf("deployments have every verb: %v", verbs)
	}
}
