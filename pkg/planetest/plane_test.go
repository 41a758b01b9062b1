package planetest_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func namespaces() controlplane.Part {
	return controlplane.Parts{core.Namespaces{}, core.ConfigMaps{}}
}

// TestDefaults: what the controller of a custom resource asks of a cluster is
// answered, and what a cluster does by itself is done.
func TestDefaults(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, withWidgets())
	client, ctx := plane.Client(), t.Context()
	must(t, client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error())
	for _, resource := range []string{
		"pods", "services", "events", "serviceaccounts", "deployments.apps", "jobs.batch", "leases.coordination.k8s.io", "roles.rbac.authorization.k8s.io",
		"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io", "widgets.example.com",
		"endpointslices.discovery.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io",
	} {
		if _, err := plane.RESTMapper().ResourceFor(schema.ParseGroupResource(resource).WithVersion("")); err != nil {
			t.Errorf("%s: %v", resource, err)
		}
	}

	ns := plane.Namespace(t)
	owner, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owned", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}},
	}}, metav1.CreateOptions{})
	must(t, err)
	must(t, client.CoreV1().ConfigMaps(ns).Delete(ctx, "owner", metav1.DeleteOptions{}))
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", ns+"/owned"), planetest.Gone())
	must(t, client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}))
	plane.WaitFor(t, planetest.Object("v1", "Namespace", ns), planetest.Gone())
}

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true, Kubeconfig: true}.Start(t, namespaces())
	config, err := clientcmd.BuildConfigFromFlags("", plane.Kubeconfig())
	must(t, err)
	if !strings.HasPrefix(config.Host, "https://127.0.0.1:") {
		t.Errorf("the host is %s", config.Host)
	}
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	_, err = client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	must(t, err)

	if got := (planetest.Options{NoDefaults: true}).Start(t, namespaces()).Kubeconfig(); got != "" {
		t.Errorf("a plane that was not asked for a kubeconfig has %s", got)
	}
}

// TestParts: given parts are added to the defaults or take their places.
func TestParts(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{Storage: memory.Store{}}.Start(t, crd.Definitions{FS: os.DirFS("../../config/samples")},
		controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Work(controlplane.Work{Name: "mark", Start: func(ctx context.Context, p *controlplane.Plane) error {
				client, err := kubernetes.NewForConfig(p.Config())
				if err != nil {
					return err
				}
				_, err = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mark"}}, metav1.CreateOptions{})
				return err
			}})
			return nil
		}))
	plane.WaitFor(t, planetest.Object("v1", "ConfigMap", "mark"), planetest.Exists())
	if _, err := plane.RESTMapper().ResourceFor(schema.GroupVersionResource{Group: "example.com", Resource: "widgets"}); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	broken := func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "break", Start: func(context.Context, *controlplane.Plane) error { return errors.New("out of order") }})
		return nil
	}
	tests := map[string]struct {
		reason string
		parts  controlplane.Part
		want   string
	}{
		"build": {"what Build says reaches the test", core.Namespaces{}, `"namespaces"`},
		"start": {"what Run says reaches the test", controlplane.PartFunc(broken), "out of order"},
		"files": {"a directory of CRDs that is not there is told", planetest.WithCRDs(os.DirFS("nowhere"), os.DirFS("nowhere")), `part "planetest.WithCRDs": given CRDs: `},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := []controlplane.Part{core.Namespaces{}, test.parts}
			got := failure(t, func(t planetest.TB) { planetest.Options{NoDefaults: true}.Start(t, parts...) })
			contains(t, got, "planetest: ", test.want)
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
}

// TestWithCRDsIsAPart: a server takes the part too, with files of several folders.
func TestWithCRDsIsAPart(t *testing.T) {
	t.Parallel()
	config := atOnce(t, namespaces(), planetest.WithCRDs(fstest.MapFS{}, os.DirFS("../../config/samples")))
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	_, err = client.Discovery().ServerResourcesForGroupVersion("example.com/v1")
	must(t, err)
}

// TestGivenDefinitionsStay: CRDs of files are beside those of a given part, whose
// other fields count.
func TestGivenDefinitionsStay(t *testing.T) {
	t.Parallel()
	const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: gadgets, kind: Gadget}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	given := crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(gadgets)}}}
	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces(), given, withWidgets())
	for _, group := range []string{"example.com/v1", "example.org/v1"} {
		_, err := plane.Discovery().ServerResourcesForGroupVersion(group)
		must(t, err)
	}
	// A list that is wrong is told by the part, if it has it.
	given.Deny = []netip.Prefix{{}}
	got := failure(t, func(t planetest.TB) { planetest.Start(t, given, withWidgets()) })
	contains(t, got, `part "crds": deny[0]: invalid Prefix`)
}

// TestAs: a user may do what roles allow, and the views do not get into each other's way.
func TestAs(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t)
	ctx := t.Context()
	jane := plane.As("jane", "readers")
	read := func(p *planetest.Plane) error {
		_, err := p.Client().CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		return err
	}
	if err := read(jane); !apierrors.IsForbidden(err) {
		t.Errorf("before there is a role: %v", err)
	}
	plane.Apply(t, planetest.Objects(
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "read"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "read"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "read"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "readers"}},
		}))
	plane.Eventually(t, func(context.Context) error { return read(jane) })
	if err := read(plane.As("joe")); !apierrors.IsForbidden(err) {
		t.Errorf("another user: %v", err)
	}
	must(t, read(plane))
	got := failure(t, func(t planetest.TB) {
		jane.Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"))
	})
	contains(t, got, "ConfigMap x", `User "jane" cannot`)
}

// TestPlanesAreApart: nothing of one plane is in another.
func TestPlanesAreApart(t *testing.T) {
	t.Parallel()
	left, right := planetest.Options{NoDefaults: true}.Start(t, few()), planetest.Options{NoDefaults: true}.Start(t, namespaces(), crd.Definitions{})
	left.Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}"))
	if _, err := right.Client().CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the other plane: %v", err)
	}
	if _, err := right.RESTMapper().ResourceFor(schema.GroupVersionResource{Group: "example.com", Resource: "widgets"}); err == nil {
		t.Error("the other plane has the CRD")
	}
}
