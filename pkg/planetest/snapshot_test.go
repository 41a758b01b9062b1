package planetest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

const twoMaps = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {colour: red, size: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}
`

// TestSnapshot: two planes with which the same was done look the same, and a
// difference says what was done.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	one, other := planetest.Start(t), planetest.Start(t)
	for _, plane := range []*planetest.Plane{one, other} {
		plane.Apply(t, planetest.YAML(twoMaps))
	}
	if diff := one.Content(t).Diff(other.Content(t)); diff != "" {
		t.Errorf("two planes with the same content differ:\n%s", diff)
	}
	before := one.Snapshot(t)
	contains(t, before.YAML(), "kind: Namespace", "name: cluster-admin", "colour: red")
	if diff := before.Diff(one.Snapshot(t)); diff != "" {
		t.Errorf("nothing was done, and yet:\n%s", diff)
	}
	one.Apply(t, planetest.YAML(`
{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {colour: blue, size: "1"}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}
`))
	must(t, one.Client().CoreV1().ConfigMaps("default").Delete(t.Context(), "b", metav1.DeleteOptions{}))
	want := `~ ConfigMap default/a (v1)
      apiVersion: v1
      data:
    -   colour: red
    +   colour: blue
        size: "1"
      kind: ConfigMap
      metadata:
- ConfigMap default/b (v1)
+ ConfigMap default/c (v1)
    + apiVersion: v1
    + kind: ConfigMap
    + metadata:
    +   name: c
    +   namespace: default
`
	if diff := cmp.Diff(want, before.Diff(one.Snapshot(t))); diff != "" {
		t.Errorf("the difference (-want +got):\n%s", diff)
	}
}

// TestSnapshotIsPlain: what differs from one run to the next is left out wherever it is.
func TestSnapshotIsPlain(t *testing.T) {
	t.Parallel()
	plane := planetest.Options{NoDefaults: true}.Start(t, namespaces())
	ns := plane.Namespace(t)
	owner := plane.In(ns).Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: owner}}"))[0]
	plane.Apply(t, planetest.Objects(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "owned", Namespace: ns,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: owner.GetUID()}},
		},
		Data: map[string]string{"startTime": "2026-01-01T00:00:00Z", "bedtime": "late"},
	}))
	want := `apiVersion: v1
data:
  bedtime: late
  startTime: <time>
kind: ConfigMap
metadata:
  name: owned
  ownerReferences:
  - apiVersion: v1
    kind: ConfigMap
    name: owner
    uid: <uid>
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: owner
`
	if diff := cmp.Diff(want, plane.In(ns).Content(t).YAML()); diff != "" {
		t.Errorf("the content of the namespace (-want +got):\n%s", diff)
	}
}

// TestContent: a plane that was only started has no content, whatever its parts
// still write.
func TestContent(t *testing.T) {
	t.Parallel()
	plane := planetest.Start(t, withWidgets())
	if names := plane.Content(t).Names(); len(names) > 0 {
		t.Errorf("it has %s", strings.Join(names, ", "))
	}
}

func TestGolden(t *testing.T) {
	plane := planetest.Options{NoDefaults: true}.Start(t, few())
	plane.Apply(t, planetest.YAML(twoMaps), planetest.YAML(widget))
	plane.Golden(t, filepath.Join("testdata", "golden.yaml"))
	if os.Getenv(planetest.UpdateVariable) != "" {
		t.Skip("the rest is about files that are not written")
	}
	file := filepath.Join(t.TempDir(), "new", "golden.yaml")
	contains(t, failure(t, func(t planetest.TB) { plane.Golden(t, file) }), "there is no", "PLANETEST_UPDATE=1")
	t.Setenv(planetest.UpdateVariable, "1")
	plane.Golden(t, file)
	t.Setenv(planetest.UpdateVariable, "0")
	plane.Golden(t, file)
	plane.Apply(t, planetest.YAML("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {colour: blue}}"))
	contains(t, failure(t, func(t planetest.TB) { plane.Golden(t, file) }), "differs", "-   colour: red", "+   colour: blue")
}
