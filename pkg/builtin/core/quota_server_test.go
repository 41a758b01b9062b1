package core_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
)

// TestQuotas is about what is kept and not enforced.
func TestQuotas(t *testing.T) {
	t.Parallel()
	client := serve(t, core.ServiceAccounts{}, core.ResourceQuotas{}, core.LimitRanges{})
	tests := map[string]func(*testing.T, *kubernetes.Clientset){
		"Accounts": accounts, "Quota": quota, "Limits": limits,
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client)
		})
	}
}

func columnsAndCells(t *testing.T, client *kubernetes.Clientset, path string) ([]string, []any) {
	t.Helper()
	raw, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default/"+path).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, c := range table.ColumnDefinitions {
		columns = append(columns, c.Name)
	}
	return columns, table.Rows[0].Cells
}

func accounts(t *testing.T, client *kubernetes.Clientset) {
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Secrets: []corev1.ObjectReference{{Name: "s", Namespace: "other"}}}
	sa, err := client.CoreV1().ServiceAccounts("default").Create(t.Context(), sa, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]corev1.ObjectReference{{Name: "s"}}, sa.Secrets); diff != "" || sa.Generation != 0 {
		t.Errorf("generation %d, secrets (-want +got):\n%s", sa.Generation, diff)
	}
	columns, _ := columnsAndCells(t, client, "serviceaccounts/a")
	if diff := cmp.Diff([]string{"Name", "Age"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}

func quota(t *testing.T, client *kubernetes.Clientset) {
	ctx, quotas := t.Context(), client.CoreV1().ResourceQuotas("default")
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}}
	q.Spec.Hard = corev1.ResourceList{"pods": resource.MustParse("2"), "limits.cpu": resource.MustParse("1")}
	q.Status.Hard = q.Spec.Hard
	q, err := quotas.Create(ctx, q, metav1.CreateOptions{})
	if err != nil || len(q.Status.Hard) > 0 || q.Generation != 0 {
		t.Fatalf("a new quota has no status: %+v, %v", q, err)
	}
	body := []byte(`{"metadata":{"labels":{"a":"b"}},"spec":{"hard":{"pods":"9"}},"status":{"hard":{"pods":"2","limits.cpu":"1"},"used":{"pods":"1"}}}`)
	q, err = quotas.Patch(ctx, "q", types.MergePatchType, body, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if pods := q.Spec.Hard["pods"]; pods.Value() != 2 || q.Labels["a"] != "b" {
		t.Errorf("a write to status changes status and metadata, not spec: %+v", q)
	}
	columns, cells := columnsAndCells(t, client, "resourcequotas/q")
	if diff := cmp.Diff([]string{"Name", "Request", "Limit", "Age"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]any{"q", "pods: 1/2", "limits.cpu: 0/1"}, cells[:3]); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	_, err = quotas.Patch(ctx, "q", types.MergePatchType, []byte(`{"status":{"used":{"pods":"-1"}}}`), metav1.PatchOptions{}, "status")
	want := `ResourceQuota "q" is invalid: status.used[pods]: Invalid value: "-1": must be greater than or equal to 0`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
	_, err = quotas.Patch(ctx, "q", types.MergePatchType, []byte(`{"spec":{"hard":null,"scopes":["BestEffort"]}}`), metav1.PatchOptions{})
	want = `ResourceQuota "q" is invalid: spec.scopes: Invalid value: ["BestEffort"]: field is immutable`
	if err == nil || err.Error() != want {
		t.Errorf("got error %v, want %q", err, want)
	}
}

func limits(t *testing.T, client *kubernetes.Clientset) {
	l := &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
		Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{"cpu": resource.MustParse("1")},
	}}}}
	l, err := client.CoreV1().LimitRanges("default").Create(t.Context(), l, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpu := l.Spec.Limits[0].DefaultRequest["cpu"]; l.Name == "" || cpu.Value() != 1 || l.Generation != 0 {
		t.Errorf("it gets a name and defaults: %+v", l)
	}
	columns, _ := columnsAndCells(t, client, "limitranges/"+l.Name)
	if diff := cmp.Diff([]string{"Name", "Created At"}, columns); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
}
