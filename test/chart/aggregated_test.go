package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

// lending runs a sailplane that lends storage, and finds a Service at a port.
func lending(t *testing.T, service, port string) *server {
	t.Helper()
	return start(t, exec.Command(sailplane, "serve", "--listen=127.0.0.1:0", "--data-dir="+t.TempDir(), "--storage=memory", "--storage-api",
		"--service="+service+"=127.0.0.1:"+port))
}

// TestAggregatedLint: helm finds nothing to complain about.
func TestAggregatedLint(t *testing.T) {
	t.Parallel()
	for name, flags := range tried() {
		if _, err := helm(t, os.DevNull, append([]string{"lint", "--strict", aggregated(t), required}, flags...)...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAggregatedObjects: a server takes every object that the chart renders and knows each of its fields, and no
// APIService trusts whoever answers.
func TestAggregatedObjects(t *testing.T) {
	t.Parallel()
	s := lending(t, "prod/plane", "1")
	kubectlOutput(t, s, "create", "namespace", namespace)
	r := resourcesOf(t, s.config(t))
	for name, flags := range tried() {
		t.Run(name, func(t *testing.T) {
			for _, object := range renderAggregated(t, flags...) {
				if object.GetKind() == "APIService" {
					spec := object.Object["spec"].(map[string]any)
					if spec["caBundle"] == "" || spec["insecureSkipTLSVerify"] != nil {
						t.Errorf("APIService %s trusts %v", object.GetName(), spec)
					}
				}
				r.takes(t, object)
			}
		})
	}
}

// TestAggregatedPod: the pod may do nothing that the server does not need, the Service leads to it, and it has the
// files that its flags name.
func TestAggregatedPod(t *testing.T) {
	t.Parallel()
	for name, flags := range tried() {
		objects := renderAggregated(t, flags...)
		var deployment appsv1.Deployment
		var service corev1.Service
		objects.into(t, "Deployment", &deployment)
		objects.into(t, "Service", &service)
		pod, container := deployment.Spec.Template.Spec, deployment.Spec.Template.Spec.Containers[0]
		user, no, yes := int64(65532), false, true
		if diff := cmp.Diff(&corev1.PodSecurityContext{
			RunAsUser: &user, RunAsGroup: &user, RunAsNonRoot: &yes, FSGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}, pod.SecurityContext); diff != "" {
			t.Errorf("%s: security of the pod (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(&corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		}, container.SecurityContext); diff != "" {
			t.Errorf("%s: security of the container (-want +got):\n%s", name, diff)
		}
		for label, value := range service.Spec.Selector {
			if deployment.Spec.Template.Labels[label] != value {
				t.Errorf("%s: the pod has no label %s=%s", name, label, value)
			}
		}
		portOf(t, container, service.Spec.Ports[0].TargetPort.StrVal)
		for _, arg := range container.Args {
			_, file, is := strings.Cut(arg, "=/")
			if is && !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
				return m.ReadOnly && m.MountPath == filepath.Dir("/"+file)
			}) {
				t.Errorf("%s: nothing is mounted for %s", name, arg)
			}
		}
		if inCluster := !strings.Contains(strings.Join(container.Args, " "), "kubeconfig"); *pod.AutomountServiceAccountToken != inCluster {
			t.Errorf("%s: without a kubeconfig: %t, with a token: %t", name, inCluster, *pod.AutomountServiceAccountToken)
		}
	}
}

// installation is a release of the chart of aggregated servers, called flunders and in namespace wardle, as a server has it.
type installation struct {
	*server
	client  kubernetes.Interface
	objects dynamic.Interface
}

func installationOf(t *testing.T, s *server) *installation {
	t.Helper()
	i := &installation{server: s}
	var err error
	if i.client, err = kubernetes.NewForConfig(s.config(t)); err != nil {
		t.Fatal(err)
	}
	if i.objects, err = dynamic.NewForConfig(s.config(t)); err != nil {
		t.Fatal(err)
	}
	return i
}

// get returns the spec and the status of an object that is in no namespace.
func (i *installation) get(t *testing.T, of apischema.GroupVersionResource, name string) (spec, status map[string]any) {
	t.Helper()
	object, err := i.objects.Resource(of).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _ = object.Object["spec"].(map[string]any)
	status, _ = object.Object["status"].(map[string]any)
	return spec, status
}

func (i *installation) storage(t *testing.T) (spec, status map[string]any) {
	t.Helper()
	of := apischema.GroupVersionResource{Group: "storage.sailplane.dev", Version: "v1alpha1", Resource: "etcdstorages"}
	return i.get(t, of, "wardle-flunders")
}

// trusted is the authority of the aggregated server.
func (i *installation) trusted(t *testing.T) any {
	t.Helper()
	of := apischema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	spec, _ := i.get(t, of, "v1alpha1.wardle.example.com")
	return spec["caBundle"]
}

func (i *installation) secret(t *testing.T, name string) map[string]string {
	t.Helper()
	s, err := i.client.CoreV1().Secrets("wardle").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]string{}
	for key, value := range s.Data {
		data[key] = string(value)
	}
	return data
}

func (i *installation) deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	d, err := i.client.AppsV1().Deployments("wardle").Get(t.Context(), "flunders", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// identify makes the Secret with a kubeconfig of the chart's ServiceAccount: there is no pod that could have its token.
func (i *installation) identify(t *testing.T) {
	t.Helper()
	token := strings.TrimSpace(kubectlOutput(t, i.server, "create", "token", "flunders", "--namespace=wardle"))
	config := clientcmdapi.NewConfig()
	config.Clusters["plane"] = &clientcmdapi.Cluster{Server: i.url, CertificateAuthorityData: i.config(t).CAData}
	config.AuthInfos["flunders"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["plane"] = &clientcmdapi.Context{Cluster: "plane", AuthInfo: "flunders"}
	config.CurrentContext = "plane"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Data: map[string][]byte{"kubeconfig": text}}
	if _, err := i.client.CoreV1().Secrets("wardle").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// serve starts the server that the Deployment describes, at another port, with what its volumes have.
func (i *installation) serve(t *testing.T, port string) *server {
	t.Helper()
	template := i.deployment(t).Spec.Template.Spec
	var authority *corev1.ConfigMap
	secrets := map[string]map[string]string{}
	for _, volume := range template.Volumes {
		switch {
		case volume.Secret != nil:
			secrets[volume.Secret.SecretName] = i.secret(t, volume.Secret.SecretName)
		case volume.ConfigMap != nil:
			var err error
			if authority, err = i.client.CoreV1().ConfigMaps("wardle").Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cmd := prepare(t, &template, authority, secrets).command("--secure-port="+port, "--bind-address=127.0.0.1")
	cmd.Path, cmd.Args[0] = sampleProgram, sampleProgram
	s := launch(t, cmd)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("sample-apiserver:\n%s", &s.out)
		}
	})
	return s
}

// upgrade changes a value of the release.
func (i *installation) upgrade(t *testing.T, set string) {
	t.Helper()
	_, err := helm(t, i.kubeconfig, "upgrade", "flunders", aggregated(t), "--namespace=wardle", "--reuse-values", "--set="+set)
	if err != nil {
		t.Fatal(err)
	}
}

// create makes a flunder through the front.
func (i *installation) create(t *testing.T, name string) {
	t.Helper()
	r := i.objects.Resource(apischema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"})
	flunder := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"reference": "a"},
	}}
	if _, err := r.Namespace("wardle").Create(t.Context(), flunder, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// gone wants nothing to be left of the release, nor what was written for its storage.
func (i *installation) gone(t *testing.T) {
	t.Helper()
	kinds := "deployments,services,serviceaccounts,rolebindings,clusterroles,clusterrolebindings,apiservices,etcdstorages"
	labelled := "--selector=app.kubernetes.io/instance=flunders"
	if left := kubectlOutput(t, i.server, "get", kinds, "--all-namespaces", labelled, "--output=name"); left != "" {
		t.Errorf("after it was removed there are\n%s", left)
	}
	eventually(t, "the certificates are gone", func() bool {
		return !strings.Contains(kubectlOutput(t, i.server, "get", "secrets,configmaps", "--namespace=wardle", "--output=name"), "flunders")
	})
}

// TestAggregatedPage does what docs/deploying.md says, and has the unmodified sample-apiserver of the Deployment serve
// through the front, from a storage of the front. An upgrade keeps everything, and the end of the release leaves nothing.
func TestAggregatedPage(t *testing.T) {
	t.Parallel()
	_, section, found := strings.Cut(read(t, repository(t), "docs", "deploying.md"), "\n### An aggregated server without an etcd\n")
	script := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindStringSubmatch(section)
	if !found || script == nil {
		t.Fatal("docs/deploying.md has no script for an aggregated server")
	}
	port, err := behind.Port()
	if err != nil {
		t.Fatal(err)
	}
	i := installationOf(t, lending(t, "wardle/flunders", port))
	sh := newShell(t, i.server)
	sh.paths = strings.NewReplacer("https://api.example.com:443", i.url)
	sh.run(t, script[1])
	_, status := i.storage(t)
	endpoint, _ := status["endpoint"].(string)
	if args := i.deployment(t).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--etcd-servers="+endpoint) {
		t.Errorf("the storage is at %q, and the server has the flags %v", endpoint, args)
	}

	i.identify(t)
	i.upgrade(t, "kubeconfig.existingSecret=front,etcdStorage.endpoint=") // the EtcdStorage says by now where it is
	sample := i.serve(t, port)
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		kubectlOutput(t, i.server, "wait", "apiservice/"+version+".wardle.example.com", "--for=condition=Available", "--timeout=120s")
	}
	i.create(t, "first")

	trusted, serving, generation := i.trusted(t), i.secret(t, "flunders-serving"), i.deployment(t).Generation
	i.upgrade(t, "etcdStorage.limits.keys=500")
	kubectlOutput(t, i.server, "wait", "etcdstorage/wardle-flunders", "--for=jsonpath={.status.observedGeneration}=2", "--timeout=60s")
	spec, _ := i.storage(t)
	if keys, _, err := unstructured.NestedInt64(spec, "limits", "keys"); keys != 500 {
		t.Errorf("the storage may have %d keys: %v", keys, err)
	}
	if diff := cmp.Diff(serving, i.secret(t, "flunders-serving")); diff != "" || i.trusted(t) != trusted {
		t.Errorf("another limit changed the certificate, or who is trusted:\n%s", diff)
	}
	if now := i.deployment(t).Generation; now != generation {
		t.Errorf("another limit changed the Deployment: generation %d, and was %d", now, generation)
	}
	i.create(t, "second")
	list := kubectlOutput(t, i.server, "get", "flunders", "--namespace=wardle", "--output=name")
	if want := "flunder.wardle.example.com/first\nflunder.wardle.example.com/second\n"; list != want {
		t.Errorf("there are\n%s", list)
	}

	// It would give the watches of the front a minute to end.
	if err := sample.cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	<-sample.done
	if _, err := helm(t, i.kubeconfig, "uninstall", "flunders", "--namespace=wardle", "--wait"); err != nil {
		t.Fatal(err)
	}
	i.gone(t)
}
