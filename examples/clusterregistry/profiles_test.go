package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientauthv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/cluster-inventory-api/pkg/access"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	runtimecluster "sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcbuilder "sigs.k8s.io/multicluster-runtime/pkg/builder"
	"sigs.k8s.io/multicluster-runtime/pkg/clusters"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// asPlugin has this program be the credential plugin of clients (KEP-541).
const asPlugin = "CLUSTERREGISTRY_KUBECONFIGS"

func TestMain(m *testing.M) {
	if kubeconfigs := os.Getenv(asPlugin); kubeconfigs != "" {
		if err := plugin(kubeconfigs); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// plugin prints the credentials of the kubeconfig for the server that is asked about.
func plugin(kubeconfigs string) error {
	var asked clientauthv1.ExecCredential
	var files map[string]string
	if err := errors.Join(json.Unmarshal([]byte(os.Getenv("KUBERNETES_EXEC_INFO")), &asked), json.Unmarshal([]byte(kubeconfigs), &files)); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", files[asked.Spec.Cluster.Server])
	if err != nil {
		return err
	}
	asked.Status = &clientauthv1.ExecCredentialStatus{
		ClientCertificateData: string(config.CertData), ClientKeyData: string(config.KeyData), Token: config.BearerToken,
	}
	return json.NewEncoder(os.Stdout).Encode(asked)
}

// TestMulticlusterRuntime has one controller answer the questions of three servers, which it finds in the registry.
func TestMulticlusterRuntime(t *testing.T) {
	t.Parallel()
	registry := serve(t, config{watch: true, provider: "plugin"})
	planes, kubeconfigs := map[string]*planetest.Plane{}, map[string]string{}
	to := clientOf(t, registry)
	for _, name := range []string{"east", "north", "west"} {
		plane := planetest.Options{NoDefaults: true, Kubeconfig: true}.Start(t, core.Namespaces{}, core.ConfigMaps{})
		config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		planes[name], kubeconfigs[config.Host] = plane, plane.Kubeconfig()
		c := cluster(name)
		c.Spec.KubernetesAPIEndpoints.ServerEndpoints[0].ServerAddress = config.Host
		c.Spec.KubernetesAPIEndpoints.CABundle = config.CAData
		if err := to.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	stop := answer(t, registry, kubeconfigs)
	for name, plane := range planes {
		plane.Apply(t, planetest.YAML(`{apiVersion: v1, kind: ConfigMap, metadata: {name: question, namespace: default}}`))
		plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "question"), planetest.JSONPath("{.data.answer}", "from kube-multicluster-public/"+name))
	}
	stop()
}

// answer runs the controller until the function that it returns is called.
func answer(t *testing.T, registry *planetest.Plane, kubeconfigs map[string]string) (stop func()) {
	t.Helper()
	types := runtime.NewScheme()
	if err := inventory.AddToScheme(types); err != nil {
		t.Fatal(err)
	}
	profiles, err := cache.New(registry.Config(), cache.Options{Scheme: types})
	if err != nil {
		t.Fatal(err)
	}
	servers, err := json.Marshal(kubeconfigs)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	provider := &profileProvider{Clusters: clusters.New[runtimecluster.Cluster](), profiles: profiles, t: t}
	provider.access = access.New([]access.Provider{{Name: "plugin", ExecConfig: &clientcmdapi.ExecConfig{
		APIVersion: clientauthv1.SchemeGroupVersion.String(), Command: program, ProvideClusterInfo: true,
		Env: []clientcmdapi.ExecEnvVar{{Name: asPlugin, Value: string(servers)}},
	}}})
	manager, err := mcmanager.New(registry.Config(), provider, mcmanager.Options{Metrics: metricsserver.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	err = mcbuilder.ControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		WithOptions(controller.TypedOptions[mcreconcile.Request]{SkipNameValidation: ptr.To(true)}).
		Complete(mcreconcile.Func(func(ctx context.Context, r mcreconcile.Request) (ctrl.Result, error) {
			found, err := manager.GetCluster(ctx, r.ClusterName)
			if err != nil {
				return ctrl.Result{}, err
			}
			var question corev1.ConfigMap
			if err := found.GetClient().Get(ctx, r.NamespacedName, &question); err != nil || question.Name != "question" {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			question.Data = map[string]string{"answer": "from " + string(r.ClusterName)}
			return ctrl.Result{}, found.GetClient().Update(ctx, &question)
		}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Start(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// profileProvider tells multicluster-runtime of the clusters that have a ClusterProfile.
type profileProvider struct {
	clusters.Clusters[runtimecluster.Cluster]
	profiles cache.Cache
	access   *access.Config
	t        *testing.T
}

// Start implements multicluster.ProviderRunnable.
func (p *profileProvider) Start(ctx context.Context, aware multicluster.Aware) error {
	informer, err := p.profiles.GetInformer(ctx, &inventory.ClusterProfile{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	name := func(o any) multicluster.ClusterName {
		return multicluster.ClusterName(client.ObjectKeyFromObject(o.(client.Object)).String())
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			config, err := p.access.BuildConfigFromCP(o.(*inventory.ClusterProfile))
			if err != nil {
				p.t.Error(err)
				return
			}
			found, err := runtimecluster.New(config)
			if err == nil {
				err = p.AddOrReplace(ctx, name(o), found, aware)
			}
			if err != nil && ctx.Err() == nil {
				p.t.Errorf("cluster %s: %v", name(o), err)
			}
		},
		DeleteFunc: func(o any) {
			if _, unknown := o.(toolscache.DeletedFinalStateUnknown); !unknown {
				p.Remove(name(o))
			}
		},
	})
	if err != nil {
		return err
	}
	return p.profiles.Start(ctx)
}

// TestProfile: a profile says what the registry knows, and cannot be written.
func TestProfile(t *testing.T) {
	t.Parallel()
	plane := serve(t, config{watch: true, provider: "plugin"})
	to := clientOf(t, plane)
	c := cluster("east")
	c.Labels = map[string]string{"region": "us-east-1"}
	if err := to.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	c.Status.Version = "v1.37.2"
	c.Status.Conditions = []v1alpha1.ClusterCondition{{Type: v1alpha1.ClusterOK, Status: metav1.ConditionTrue, Reason: "Answers", LastTransitionTime: metav1.Now()}}
	if err := to.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	profile := planetest.Object("multicluster.x-k8s.io/v1alpha1", "ClusterProfile", "kube-multicluster-public/east")
	got := plane.WaitFor(t, profile, planetest.Condition(inventory.ClusterConditionControlPlaneHealthy, "True"),
		planetest.JSONPath("{.status.version.kubernetes}", "v1.37.2"), planetest.JSONPath("{.spec.clusterManager.name}", manager),
		planetest.JSONPath("{.status.accessProviders[0].cluster.server}", "https://east.example.com"))
	if labels := got.GetLabels(); labels["region"] != "us-east-1" || labels[inventory.LabelClusterManagerKey] != manager {
		t.Errorf("labels are %v", labels)
	}
	list, err := plane.Discovery().ServerResourcesForGroupVersion("multicluster.x-k8s.io/v1alpha1")
	if err != nil || len(list.APIResources) != 1 || fmt.Sprint(list.APIResources[0].Verbs) != "[get list watch]" {
		t.Errorf("resources %v, %v", list, err)
	}
}
