package apis_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(201, "POST", apples, gala)
	changed := strings.NewReplacer(`"old"`, `"new"`, `"Gala"`, `"Fuji"`).Replace(gala)
	s.call(200, "PUT", apples+"/gala/status", changed).has("status alone changes",
		"status.ripe", "true", "spec.variety", `"Gala"`, "metadata.labels.tree", `"old"`, "metadata.generation", "1")
	s.call(200, "PUT", apples+"/gala", gala).has("and survives a write of the rest", "status.ripe", "true", "metadata.generation", "1")
	s.patch(200, "merge-patch+json", apples+"/gala/status", `{"status":{"replicas":7}}`).has("patch", "status.replicas", "7")
	s.patch(422, "merge-patch+json", apples+"/gala/status", `{"status":{"replicas":-7}}`)
	s.call(200, "GET", apples+"/gala/status", "").has("get", "status.replicas", "7")
	s.call(404, "PUT", apples+"/fuji/status", strings.Replace(gala, `"gala"`, `"fuji"`, 1))
	s.call(405, "POST", apples+"/gala/status", gala)
}

func TestStatusAndMetadata(t *testing.T) {
	t.Parallel()
	s := serve(t, everything(apis.StatusAndMetadata("labels", "ownerReferences")))
	s.call(201, "POST", apples, gala)
	changed := `{"kind":"Apple","apiVersion":"fruit.example.com/v1","metadata":{"name":"gala","labels":{"tree":"new"},` +
		`"annotations":{"a":"b"},"finalizers":["example.com/f"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"u"}]},` +
		`"spec":{"variety":"Fuji"},"status":{"ripe":true}}`
	a := s.call(200, "PUT", apples+"/gala/status?fieldManager=kim", changed)
	a.has("metadata changes but for what is kept", "status.ripe", "true", "spec.variety", `"Gala"`, "metadata.labels.tree", `"old"`,
		"metadata.annotations.a", `"b"`, "metadata.finalizers", `["example.com/f"]`, "metadata.generation", "1")
	if owners := a.GetOwnerReferences(); len(owners) != 0 {
		t.Errorf("owners are kept: got %v", owners)
	}
	owned := ""
	for _, m := range a.GetManagedFields() {
		if m.Manager == "kim" && m.Subresource == "status" {
			owned = m.FieldsV1.GetRawString()
		}
	}
	for field, want := range map[string]bool{"f:ripe": true, "f:annotations": true, "f:labels": false, "f:ownerReferences": false, "f:spec": false} {
		if strings.Contains(owned, field) != want {
			t.Errorf("whoever writes /status owns what it wrote and no more: %s is owned: %v, want %v (%s)", field, !want, want, owned)
		}
	}
	s.patch(422, "merge-patch+json", apples+"/gala/status", `{"metadata":{"annotations":{"-":"x"}}}`)
	s.patch(200, "apply-patch+yaml", apples+"/gala/status?fieldManager=ann&force=true",
		`{"kind":"Apple","apiVersion":"fruit.example.com/v1","metadata":{"name":"gala","annotations":{"c":"d"}},"status":{"replicas":7}}`).
		has("apply does too", "status.replicas", "7", "metadata.annotations.c", `"d"`, "metadata.annotations.a", `"b"`)
	s.call(200, "DELETE", apples+"/gala", "")
	s.patch(200, "merge-patch+json", apples+"/gala/status", `{"metadata":{"finalizers":null}}`)
	s.call(404, "GET", apples+"/gala", "")
}

func TestScale(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(201, "POST", apples, gala)
	s.call(200, "GET", apples+"/gala/scale", "").has("a Scale", "apiVersion", `"autoscaling/v1"`, "kind", `"Scale"`,
		"spec.replicas", "1", "status.selector", `"tree=gala"`)
	s.patch(200, "merge-patch+json", apples+"/gala/scale", `{"spec":{"replicas":5}}`).has("scaled", "spec.replicas", "5")
	s.call(200, "GET", apples+"/gala", "").has("the object follows", "spec.replicas", "5", "metadata.generation", "2")
	scale := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"gala"},"spec":{"replicas":6}}`
	s.call(200, "PUT", apples+"/gala/scale", scale).has("put", "spec.replicas", "6")
	s.patch(409, "apply-patch+yaml", apples+"/gala/scale?fieldManager=hpa", strings.Replace(scale, "6", "8", 1))
	s.patch(200, "apply-patch+yaml", apples+"/gala/scale?fieldManager=hpa&force=true", strings.Replace(scale, "6", "8", 1)).
		has("applied", "spec.replicas", "8")
	s.patch(422, "merge-patch+json", apples+"/gala/scale", `{"spec":{"replicas":-1}}`)
	s.patch(422, "merge-patch+json", apples+"/gala/scale", `{"spec":{"replicas":101}}`)
	s.patch(409, "merge-patch+json", apples+"/gala/scale", `{"metadata":{"resourceVersion":"1"},"spec":{"replicas":2}}`)
	s.call(404, "GET", apples+"/fuji/scale", "")
	for _, m := range s.call(200, "GET", apples+"/gala?", "").GetManagedFields() {
		if owns := strings.Contains(m.FieldsV1.GetRawString(), "f:replicas"); owns != (m.Manager == "hpa") {
			t.Errorf("%s owns %s", m.Manager, m.FieldsV1.GetRawString())
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	old := strings.Replace(apples, "v1", "v1alpha1", 1)
	s.call(201, "POST", apples, gala)
	s.call(200, "GET", old+"/gala", "").has("another name for variety", "spec.sort", `"Gala"`, "apiVersion", `"fruit.example.com/v1alpha1"`)
	s.call(201, "POST", old, `{"kind":"Apple","apiVersion":"fruit.example.com/v1alpha1","metadata":{"name":"crab"}}`).
		has("defaults of the spoke and of the hub", "spec.sort", `"wild"`, "spec.replicas", "1", "metadata.name", `"crab"`)
	list := s.call(200, "GET", old+"?fieldSelector=spec.variety%3Dwild", "")
	list.has("lists convert", "apiVersion", `"fruit.example.com/v1alpha1"`)
	if n := len(list.Object["items"].([]any)); n != 1 {
		t.Errorf("selected %d apples, want 1: %s", n, list.body)
	}
	s.call(200, "GET", apples+"/crab", "").has("the hub sees it", "spec.variety", `"wild"`)
	s.patch(200, "merge-patch+json", old+"/crab/status", `{"status":{"ripe":true}}`).has("status in a spoke", "status.ripe", "true")
	s.call(400, "POST", old, gala)
}

func TestSelectors(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(201, "POST", apples, gala)
	for selector, want := range map[string]int{
		"metadata.name%3Dgala":      1,
		"metadata.name%3Dfuji":      0,
		"metadata.namespace%21%3Dx": 1,
		"spec.variety%3DGala":       1,
		"spec.variety%21%3DGala":    0,
	} {
		if n := len(s.call(200, "GET", apples+"?fieldSelector="+selector, "").Object["items"].([]any)); n != want {
			t.Errorf("%s selected %d, want %d", selector, n, want)
		}
	}
	s.call(400, "GET", apples+"?fieldSelector=spec.replicas%3D1", "").
		has("says what can be selected", "message",
			`"\"spec.replicas\" is not a known field selector for apples: use one of metadata.name, metadata.namespace, spec.variety"`)
}

func TestWatch(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	all := s.watch("v1/apples?watch=1")
	wild := s.watch("v1alpha1/apples?watch=1&fieldSelector=spec.variety%3Dwild")
	s.call(201, "POST", apples, gala)
	s.call(201, "POST", apples, strings.NewReplacer(`"Gala"`, `"wild"`, `"gala"`, `"crab"`).Replace(gala))
	s.call(200, "DELETE", apples+"/gala", "")
	for _, want := range []string{"ADDED gala", "ADDED crab", "DELETED gala"} {
		if got := next(t, all); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := next(t, wild); got != "ADDED crab" {
		t.Errorf("the selective watch got %q", got)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	s := serve(t, everything())
	s.call(201, "POST", apples, gala)
	table := s.call(200, "GET", apples, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	var columns []string
	for _, c := range table.Object["columnDefinitions"].([]any) {
		columns = append(columns, c.(map[string]any)["name"].(string))
	}
	if got := strings.Join(columns, ","); got != "Name,Variety,Age,Grafts" {
		t.Errorf("columns %s", got)
	}
	cells := table.Object["rows"].([]any)[0].(map[string]any)["cells"].([]any)
	if cells[0] != "gala" || cells[1] != "Gala" || !strings.HasSuffix(cells[2].(string), "s") || cells[3] != 0.0 {
		t.Errorf("cells %v", cells)
	}
	s = serve(t, apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.ClusterScoped()))
	s.call(201, "POST", "v1/apples", gala).has("without Status it is a field like any other", "status.ripe", "true")
	table = s.call(200, "GET", "v1/apples/gala", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if n := len(table.Object["columnDefinitions"].([]any)); n != 2 {
		t.Errorf("%d columns by default, want 2", n)
	}
}

func TestCreateOnUpdate(t *testing.T) {
	t.Parallel()
	s := serve(t, everything(apis.CreateOnUpdate(), apis.NoGeneration()))
	s.call(201, "PUT", apples+"/gala", gala).has("created", "spec.replicas", "1", "metadata.generation", "")
	s.call(200, "PUT", apples+"/gala", strings.Replace(gala, `"Gala"`, `"Gala","replicas":2`, 1)).
		has("NoGeneration", "metadata.generation", "")
}

func TestPrepare(t *testing.T) {
	t.Parallel()
	s := serve(t, everything(
		apis.PrepareForCreate(func(_ context.Context, a *fruit.Apple) { a.Spec.Grafts = nil }),
		apis.PrepareForUpdate(func(_ context.Context, a, old *fruit.Apple) { a.Spec.Replicas = old.Spec.Replicas }),
	))
	s.call(201, "POST", apples, strings.Replace(gala, `"Gala"`, `"Gala","grafts":[{"name":"a"}]`, 1)).has("dropped", "spec.grafts", "")
	s.patch(200, "merge-patch+json", apples+"/gala", `{"spec":{"replicas":9}}`).
		has("put back before it counts", "spec.replicas", "1", "metadata.generation", "1")
}
