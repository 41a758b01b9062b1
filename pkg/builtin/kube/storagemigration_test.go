package kube_test

import (
	"strings"
	"testing"

	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func migrations(t *testing.T, config *rest.Config) {
	for spec, want := range map[string]string{
		`{"resource":{"resource":"pods"}}`:                              "",
		`{"resource":{"group":"apps"}}`:                                 "spec.resource.resource: Required value",
		`{"resource":{"resource":"pods/status"}}`:                       "spec.resource.resource: Invalid value",
		`{"resource":{"group":"Example.com","resource":"deployments"}}`: "spec.resource.group: Invalid value",
	} {
		if _, err := tryCluster(t, config, moves, `{"spec":`+spec+`}`); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %q", spec, err, want)
		}
	}
	ctx, client := t.Context(), clients(t, config).StoragemigrationV1().StorageVersionMigrations()
	m := &storagemigrationv1.StorageVersionMigration{ObjectMeta: metav1.ObjectMeta{Name: "migrations"}}
	m.Spec.Resource, m.Status.ResourceVersion = metav1.GroupResource{Resource: "pods"}, "5"
	m, err := client.Create(ctx, m, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Delete(t.Context(), "migrations", metav1.DeleteOptions{}) })
	if m.Status.ResourceVersion != "" || m.Generation != 0 {
		t.Errorf("a new migration has neither a status nor a generation: %+v", m)
	}
	other := m.DeepCopy()
	other.Spec.Resource.Resource = "secrets"
	if _, err := client.Update(ctx, other, metav1.UpdateOptions{}); err == nil || !strings.Contains(err.Error(), "spec: Invalid value") {
		t.Errorf("what is migrated stays: got %v", err)
	}
	ended := func(types ...storagemigrationv1.MigrationConditionType) []metav1.Condition {
		all := conditions(len(types))
		for i := range types {
			all[i].Type = string(types[i])
		}
		return all
	}
	for i, step := range []struct {
		reason, version string
		conditions      []metav1.Condition
		want            string
	}{
		{"a version is a number", "x", nil, "status.resourceVersion: Invalid value"},
		{"it begins", "5", ended("Running"), ""},
		{"the version stays", "6", ended("Running"), "status.resourceVersion: Invalid value"},
		{"it ends in one way", "5", ended("Succeeded", "Failed"), "Both success and failed conditions cannot be true at the same time"},
		{"a condition is there once", "5", ended("Running", "Running"), "status.conditions[1]: Duplicate value"},
		{"it ends", "5", ended("Succeeded"), ""},
		{"that stays", "5", nil, "Success condition cannot be set to false once it is true"},
	} {
		change := m.DeepCopy()
		change.Status.ResourceVersion, change.Status.Conditions = step.version, step.conditions
		got, err := client.UpdateStatus(ctx, change, metav1.UpdateOptions{})
		switch {
		case step.want == "" && err == nil:
			m = got
		case err == nil || !strings.Contains(err.Error(), step.want):
			t.Errorf("step %d: %s: got %v, want %q", i, step.reason, err, step.want)
		}
	}
	r := discovered(t, config)["storageversionmigrations.storagemigration.k8s.io"]
	if got, want := tableOf(t, config, r, "migrations"), "Name=migrations Resource=pods Status=Succeeded"; got != want {
		t.Errorf("table: got %s, want %s", got, want)
	}
}
