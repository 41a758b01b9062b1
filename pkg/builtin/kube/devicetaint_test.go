package kube_test

import (
	"strings"
	"testing"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

func taints(t *testing.T, config *rest.Config) {
	t.Run("Invalid", func(t *testing.T) { invalidTaints(t, config) })
	ctx, rules := t.Context(), clients(t, config).ResourceV1().DeviceTaintRules()
	long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: "taints"}}
	rule.Spec.Taint = resourcev1.DeviceTaint{Key: "example.com/broken", Effect: resourcev1.DeviceTaintEffectNone, TimeAdded: &long}
	rule.Status.Conditions = conditions(1)
	rule, err := rules.Create(ctx, rule, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rules.Delete(t.Context(), "taints", metav1.DeleteOptions{}) })
	if rule.Generation != 1 || len(rule.Status.Conditions) > 0 || !rule.Spec.Taint.TimeAdded.Equal(&long) {
		t.Errorf("a new rule has no status, and the time it was given: %+v", rule)
	}
	rule.Spec.Taint.Value = "a"
	if rule, err = rules.Update(ctx, rule, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if rule.Generation != 2 || !rule.Spec.Taint.TimeAdded.Equal(&long) {
		t.Errorf("another value is no other taint: %+v", rule)
	}
	rule.Spec.Taint.Effect = resourcev1.DeviceTaintEffectNoExecute
	if rule, err = rules.Update(ctx, rule, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if rule.Generation != 3 || !rule.Spec.Taint.TimeAdded.After(long.Time) {
		t.Errorf("another effect counts from now: %+v", rule)
	}
	rule.Status.Conditions, rule.Spec.Taint.Key = conditions(8), "example.com/other"
	if rule, err = rules.UpdateStatus(ctx, rule, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if rule.Generation != 3 || rule.Spec.Taint.Key != "example.com/broken" || len(rule.Status.Conditions) != 8 {
		t.Errorf("/status writes the status alone: %+v", rule)
	}
	rule.Status.Conditions = conditions(9)
	_, err = rules.UpdateStatus(ctx, rule, metav1.UpdateOptions{})
	if err == nil || !strings.Contains(err.Error(), "status.conditions: Too many: 9: must have at most 8 items") {
		t.Errorf("eight conditions are the most: got %v", err)
	}
	_, err = rules.Patch(ctx, "taints", types.MergePatchType, []byte(`{"status":{"conditions":[{"type":"a","status":"True"}]}}`), metav1.PatchOptions{}, "status")
	if err == nil || !strings.Contains(err.Error(), "status.conditions[0].reason: Required value") {
		t.Errorf("a condition has a reason: got %v", err)
	}
}

// conditions are n good ones.
func conditions(n int) []metav1.Condition {
	var all []metav1.Condition
	for i := range n {
		all = append(all, metav1.Condition{
			Type: string(rune('a' + i)), Status: metav1.ConditionTrue, Reason: "Test", LastTransitionTime: metav1.Now(),
		})
	}
	return all
}

func invalidTaints(t *testing.T, config *rest.Config) {
	const good = `"taint":{"key":"example.com/a","effect":"NoSchedule"}`
	cases := map[string]struct{ reason, spec, want string }{
		"good":   {"every name is a name", `{` + good + `,"deviceSelector":{"driver":"GPU.example.com","pool":"a/b.c","device":"gpu-0"}}`, ""},
		"none":   {"a selector without names is for all", `{` + good + `,"deviceSelector":{}}`, ""},
		"key":    {"a taint has a key", `{"taint":{"effect":"NoSchedule"}}`, "spec.taint.key: Invalid value"},
		"value":  {"a value is that of a label", `{"taint":{"key":"a","value":"a b","effect":"NoSchedule"}}`, "spec.taint.value: Invalid value"},
		"effect": {"a taint has an effect", `{"taint":{"key":"a"}}`, "spec.taint.effect: Required value"},
		"other":  {"that of nodes is not for devices", `{"taint":{"key":"a","effect":"PreferNoSchedule"}}`, `spec.taint.effect: Unsupported value: "PreferNoSchedule"`},
		"driver": {"a driver has a domain's name", `{` + good + `,"deviceSelector":{"driver":"a/b"}}`, "spec.deviceSelector.driver: Invalid value"},
		"long":   {"63 characters are the most", `{` + good + `,"deviceSelector":{"driver":"` + strings.Repeat("a", 64) + `"}}`, "spec.deviceSelector.driver: Too long"},
		"empty":  {"no name is no pool", `{` + good + `,"deviceSelector":{"pool":""}}`, "spec.deviceSelector.pool: Required value"},
		"pool":   {"each part of a pool is a name", `{` + good + `,"deviceSelector":{"pool":"a//b"}}`, "spec.deviceSelector.pool: Invalid value"},
		"device": {"a device is a label", `{` + good + `,"deviceSelector":{"device":"a.b"}}`, "spec.deviceSelector.device: Invalid value"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tryCluster(t, config, taintRules, `{"spec":`+tc.spec+`}`)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
			}
			if err == nil && !strings.Contains(tc.spec, "timeAdded") {
				if spec, _ := got.Object["spec"].(map[string]any); spec["taint"].(map[string]any)["timeAdded"] == nil {
					t.Errorf("a taint says since when it is there: got %v", spec)
				}
			}
		})
	}
	body := strings.TrimSuffix(minimal["resourceslices.resource.k8s.io"], `}}`) +
		`,"devices":[{"name":"d","taints":[{"key":"a","effect":"NoSchedule"}]}]}}`
	got, err := tryCluster(t, config, deviceSlices, body)
	if err != nil {
		t.Fatal(err)
	}
	device := got.Object["spec"].(map[string]any)["devices"].([]any)[0].(map[string]any)
	if device["taints"].([]any)[0].(map[string]any)["timeAdded"] == nil {
		t.Errorf("a taint of a slice does so as well: got %v", device)
	}
}
