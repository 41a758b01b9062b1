package core_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// TestCore runs against one server: each sub-test works in names of its own.
func TestCore(t *testing.T) {
	client := serve(t)
	tests := map[string]func(*testing.T, *kubernetes.Clientset){
		"Discovery":           discovery,
		"FirstNamespaces":     firstNamespaces,
		"NamespaceLife":       namespaceLife,
		"NamespaceUpdate":     namespaceUpdate,
		"GeneratedName":       generatedName,
		"NamespaceAdmission":  namespaceAdmission,
		"SecretStringData":    secretStringData,
		"SecretApply":         secretApply,
		"FieldSelectors":      fieldSelectors,
		"Tables":              tables,
		"Invalid":             invalid,
		"OpenAPI":             openAPI,
		"ImmutableConfigMaps": immutableConfigMaps,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

func discovery(t *testing.T, client *kubernetes.Clientset) {
	list, err := client.Discovery().ServerResourcesForGroupVersion("v1")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range list.APIResources {
		got[r.Name] = strings.Join(append([]string{r.SingularName, r.Kind, strings.Join(r.ShortNames, ",")}, r.Verbs...), " ")
	}
	want := map[string]string{
		"configmaps":          "configmap ConfigMap cm create delete deletecollection get list patch update watch",
		"secrets":             "secret Secret  create delete deletecollection get list patch update watch",
		"namespaces":          "namespace Namespace ns create delete get list patch update watch",
		"namespaces/status":   " Namespace  get patch update",
		"namespaces/finalize": " Namespace  update",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("discovery is as kube-apiserver's (-want +got):\n%s", diff)
	}
}

func firstNamespaces(t *testing.T, client *kubernetes.Clientset) {
	for _, name := range []string{"default", "kube-system"} {
		ns, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Errorf("a ready server has namespace %s: %v", name, err)
			continue
		}
		if ns.Status.Phase != corev1.NamespaceActive || ns.Labels[corev1.LabelMetadataName] != name || ns.Generation != 0 {
			t.Errorf("namespace %s is active, labelled, and has no generation: %+v", name, ns)
		}
		err = client.CoreV1().Namespaces().Delete(t.Context(), name, metav1.DeleteOptions{})
		want := `namespaces "` + name + `" is forbidden: this namespace may not be deleted`
		if err == nil || err.Error() != want {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

func namespaceLife(t *testing.T, client *kubernetes.Clientset) {
	ctx, namespaces := t.Context(), client.CoreV1().Namespaces()
	created, err := namespaces.Create(ctx, named("life"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.FinalizerName{"kubernetes"}, created.Spec.Finalizers); diff != "" {
		t.Errorf("finalizers of a new namespace (-want +got):\n%s", diff)
	}
	err = namespaces.Delete(ctx, "life", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(types.UID("x"))}})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "Precondition failed: UID in precondition: x, UID in object meta: "+string(created.UID)) {
		t.Errorf("a delete of another UID is a conflict: got %v", err)
	}
	if err := namespaces.Delete(ctx, "life", metav1.DeleteOptions{DryRun: []string{"All"}}); err != nil {
		t.Errorf("dry run: %v", err)
	}
	if ns := getNamespace(t, client, "life"); ns.DeletionTimestamp != nil {
		t.Error("a dry run changes nothing")
	}
	foreground := metav1.DeletePropagationForeground
	for range 2 {
		if err := namespaces.Delete(ctx, "life", metav1.DeleteOptions{PropagationPolicy: &foreground}); err != nil {
			t.Errorf("a delete, and another one meanwhile, are accepted: %v", err)
		}
	}
	ns := getNamespace(t, client, "life")
	if ns.DeletionTimestamp == nil || ns.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("a deleted namespace terminates: %+v", ns)
	}
	_, err = client.CoreV1().ConfigMaps("life").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	want := `configmaps "a" is forbidden: unable to create new content in namespace life because it is being terminated`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	ns.Spec.Finalizers = nil
	if _, err := namespaces.Finalize(ctx, ns, metav1.UpdateOptions{}); err != nil {
		t.Errorf("finalize: %v", err)
	}
	if _, err := namespaces.Get(ctx, "life", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a terminating namespace whose last finalizer goes is gone: got %v", err)
	}
}

func namespaceUpdate(t *testing.T, client *kubernetes.Clientset) {
	ctx, namespaces := t.Context(), client.CoreV1().Namespaces()
	if _, err := namespaces.Create(ctx, named("update"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"metadata":{"labels":{"kubernetes.io/metadata.name":null,"a":"b"}},"spec":{"finalizers":null},"status":{"phase":"Terminating"}}`)
	ns, err := namespaces.Patch(ctx, "update", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": "update", "a": "b"}, ns.Labels); diff != "" {
		t.Errorf("labels change, but the one with the name stays (-want +got):\n%s", diff)
	}
	if len(ns.Spec.Finalizers) != 1 || ns.Status.Phase != corev1.NamespaceActive {
		t.Errorf("an update changes neither finalizers nor status: %+v", ns)
	}
	_, err = namespaces.Patch(ctx, "update", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	want := "Namespace \"update\" is invalid: status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	patch = []byte(`{"metadata":{"labels":{"c":"d"}},"spec":{"finalizers":null},"status":{"conditions":[{"type":"X","status":"True"}]}}`)
	ns, err = namespaces.Patch(ctx, "update", types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if len(ns.Spec.Finalizers) != 1 || len(ns.Status.Conditions) != 1 || ns.Labels["c"] != "d" {
		t.Errorf("a write to status changes status and metadata, not spec: %+v", ns)
	}
}

func generatedName(t *testing.T, client *kubernetes.Clientset) {
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "gen-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ns.Name == "" || ns.Labels[corev1.LabelMetadataName] != ns.Name {
		t.Errorf("a generated name %q is in the label too: %v", ns.Name, ns.Labels)
	}
}

func namespaceAdmission(t *testing.T, client *kubernetes.Clientset) {
	_, err := client.CoreV1().ConfigMaps("missing").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	if want := `namespaces "missing" not found`; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func secretStringData(t *testing.T, client *kubernetes.Clientset) {
	secrets := client.CoreV1().Secrets("default")
	s, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "string-data"}, StringData: map[string]string{"a": "1"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Data["a"]) != "1" || s.StringData != nil || s.Type != corev1.SecretTypeOpaque || s.Generation != 0 {
		t.Errorf("create moves stringData: %+v", s)
	}
	s, err = secrets.Patch(t.Context(), "string-data", types.StrategicMergePatchType, []byte(`{"stringData":{"b":"2"}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if string(s.Data["a"]) != "1" || string(s.Data["b"]) != "2" || s.StringData != nil {
		t.Errorf("patch moves stringData: %+v", s)
	}
	s.Type = corev1.SecretTypeTLS
	_, err = secrets.Update(t.Context(), s, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), `type: Invalid value: "kubernetes.io/tls": field is immutable`) {
		t.Errorf("the type is immutable: got %v", err)
	}
}

func secretApply(t *testing.T, client *kubernetes.Clientset) {
	apply := []byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"apply"},"stringData":{"a":"1"}}`)
	for range 2 {
		s, err := client.CoreV1().Secrets("default").Patch(t.Context(), "apply", types.ApplyPatchType, apply, metav1.PatchOptions{FieldManager: "me"})
		if err != nil {
			t.Fatal(err)
		}
		if string(s.Data["a"]) != "1" || s.StringData != nil {
			t.Errorf("apply moves stringData: %+v", s)
		}
	}
}

func fieldSelectors(t *testing.T, client *kubernetes.Clientset) {
	ctx := t.Context()
	for name, typ := range map[string]corev1.SecretType{"select-a": "example.org/a", "select-b": "example.org/b"} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Type: typ}
		if _, err := client.CoreV1().Secrets("default").Create(ctx, s, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list, err := client.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{FieldSelector: "type=example.org/a"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "select-a" {
		t.Errorf("secrets are selected by type: %v, %v", list, err)
	}
	active, err := client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Active,metadata.name=default"})
	if err != nil || len(active.Items) != 1 {
		t.Errorf("namespaces are selected by phase: %v, %v", active, err)
	}
	_, err = client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{FieldSelector: "spec.finalizers=a"})
	if !apierrors.IsBadRequest(err) {
		t.Errorf("any other field is a bad request: got %v", err)
	}
}

func tables(t *testing.T, client *kubernetes.Clientset) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "table"}, Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "table"}, Data: map[string][]byte{"a": nil}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		columns []string
		cells   []any
	}{
		"/api/v1/namespaces/default/configmaps/table": {"data and binaryData count", []string{"Name", "Data", "Age"}, []any{"table", 2.0}},
		"/api/v1/namespaces/default/secrets/table":    {"the type tells most", []string{"Name", "Type", "Data", "Age"}, []any{"table", "Opaque", 1.0}},
		"/api/v1/namespaces/kube-system":              {"the phase", []string{"Name", "Status", "Age"}, []any{"kube-system", "Active"}},
	}
	for path, tc := range cases {
		raw, err := client.CoreV1().RESTClient().Get().AbsPath(path).
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		var table metav1.Table
		if err := json.Unmarshal(raw, &table); err != nil {
			t.Fatal(err)
		}
		var columns []string
		for _, c := range table.ColumnDefinitions {
			columns = append(columns, c.Name)
		}
		if diff := cmp.Diff(tc.columns, columns); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", path, tc.reason, diff)
		}
		if diff := cmp.Diff(tc.cells, table.Rows[0].Cells[:len(tc.cells)]); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", path, tc.reason, diff)
		}
	}
}

func invalid(t *testing.T, client *kubernetes.Clientset) {
	_, err := client.CoreV1().Namespaces().Create(t.Context(), named("a.b"), metav1.CreateOptions{})
	want := `Namespace "a.b" is invalid: metadata.name: Invalid value: "a.b": must not contain dots`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	big := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "big"}, Data: map[string]string{"a": strings.Repeat("x", corev1.MaxSecretSize+1)}}
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), big, metav1.CreateOptions{})
	want = `ConfigMap "big" is invalid: []: Too long: may not be more than 1048576 bytes`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func immutableConfigMaps(t *testing.T, client *kubernetes.Clientset) {
	configMaps := client.CoreV1().ConfigMaps("default")
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "immutable"}, Immutable: ptr.To(true)}
	if _, err := configMaps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := configMaps.Patch(t.Context(), "immutable", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
	want := "ConfigMap \"immutable\" is invalid: data: Forbidden: field is immutable when `immutable` is set"
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func openAPI(t *testing.T, client *kubernetes.Clientset) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	raw, err := client.CoreV1().RESTClient().Get().AbsPath("/openapi/v3/api/v1").DoRaw(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Kinds []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for kind, reason := range map[string]string{"Namespace": "cluster-scoped", "ConfigMap": "namespaced", "SecretList": "a list"} {
		schema := doc.Components.Schemas["io.k8s.api.core.v1."+kind]
		if !slices.Contains(schema.Kinds, metav1.GroupVersionKind{Version: "v1", Kind: kind}) {
			t.Errorf("%s, %s, has the name that clients look for: got %v", kind, reason, schema.Kinds)
		}
	}
	if _, ok := doc.Components.Schemas["io.k8s.api.core.v1.Pod"]; ok {
		t.Error("types that nobody serves are left out")
	}
}

func named(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func getNamespace(t *testing.T, client *kubernetes.Clientset, name string) *corev1.Namespace {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}
