package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
)

// TestExportAndImport has an import of an export make the same objects, and find
// nothing to do the next time.
func TestExportAndImport(t *testing.T) {
	a, b := startPlane(t), startPlane(t)
	contains(t, a.apply(t, garden), "secret garden/keys: created", "plant.example.com garden/rose: created", "10 objects: 10 created")
	before, report := a.export(t)
	contains(t, report, " left out that every server makes by itself", "elsewhere.example.com/v1 left out: another server has its objects")
	contains(t, before, "door: AAEC/f7/", "big: 9007199254740993", `"yes"`, "- example.com/hold")
	for _, never := range []string{
		"uid:", "resourceVersion:", "creationTimestamp:", "generation:", "managedFields:", "\nstatus:",
		"rbac-defaults", "automanaged", "kube-root-ca", "kind: Lease", "kind: Event\n",
	} {
		if strings.Contains(before, never) {
			t.Errorf("%q is in the export:\n%s", never, before)
		}
	}
	kinds := strings.Join(regexp.MustCompile(`(?m)^kind: .*`).FindAllString(before, -1), "\n")
	if order := regexp.MustCompile(`(?s)Namespace.*CustomResourceDef.*ServiceAccount.*Secret.*ConfigMap.*ClusterRole\n.*ClusterRoleB.*Plant.*Webhook.*APIService$`); !order.MatchString(kinds) {
		t.Errorf("the order is\n%s", kinds)
	}
	contains(t, b.apply(t, before), "customresourcedefinition.apiextensions.k8s.io plants.example.com: created")
	if after, _ := b.export(t); after != before {
		t.Errorf("exported again:\n%s\nfirst:\n%s", after, before)
	}
	contains(t, b.apply(t, before), " 0 created, 12 unchanged, 0 replaced, 0 skipped, 0 failed")
	contains(t, b.apply(t, before, "--on-conflict", "replace"), " 0 created, 12 unchanged, 0 replaced, 0 skipped, 0 failed")
	if again, _ := a.export(t, "--page-size", "1"); again != before {
		t.Errorf("in pages:\n%s\nfirst:\n%s", again, before)
	}
}

// TestExportSelects has what flags name, and nothing else.
func TestExportSelects(t *testing.T) {
	p := startPlane(t)
	p.apply(t, garden+"---\napiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {name: leader, namespace: garden}\n")
	cases := map[string]struct {
		args []string
		want string
	}{
		"resources":    {[]string{"--resources", "secrets,*.example.com"}, "Secret keys Plant rose"},
		"namespace":    {[]string{"--namespace", "garden", "--resources", "namespaces,secrets,clusterroles.rbac.authorization.k8s.io"}, "Namespace garden Secret keys"},
		"selector":     {[]string{"--selector", "season=autumn"}, "Namespace garden"},
		"a named kind": {[]string{"--resources", "leases.coordination.k8s.io", "--namespace", "garden"}, "Lease leader"},
	}
	names := regexp.MustCompile(`(?m)^kind: (.*)|^  name: (.*)`)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, _ := p.export(t, c.args...)
			var got []string
			for _, m := range names.FindAllStringSubmatch(out, -1) {
				got = append(got, m[1]+m[2])
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("exported %q, want %q", s, c.want)
			}
		})
	}
}

// during runs a function at the first progress of an export.
type during struct {
	bytes.Buffer
	do   func()
	done bool
}

// Write implements io.Writer.
func (d *during) Write(p []byte) (int, error) {
	if !d.done {
		d.done = true
		d.do()
	}
	return d.Buffer.Write(p)
}

// TestExportIsOfOneRevision changes everything after the first page: objects that were listed, that
// are listed in the same page and later, and in other resources.
func TestExportIsOfOneRevision(t *testing.T) {
	p := startPlane(t)
	p.apply(t, garden+configMaps(10, "before"))
	before, report := p.export(t)
	revision := regexp.MustCompile(`at revision (\d+)`).FindStringSubmatch(report)[1]
	change := func() {
		p.apply(t, strings.ReplaceAll(garden, "height: 3", "height: 4")+configMaps(12, "after"), "--on-conflict", "replace")
		for _, name := range []string{"c-00", "c-05", "c-09"} {
			if err := p.client.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
	d := &during{do: change}
	out, err := p.run(t.Context(), "", d, "export", "--page-size", "1")
	if err != nil || out != before {
		t.Errorf("while others write: %v\n%s\nwant\n%s", err, out, before)
	}
	if now, _ := p.export(t); now == before || !strings.Contains(now, "height: 4") {
		t.Errorf("nothing was written meanwhile:\n%s", now)
	}
	if out, _ := p.export(t, "--revision", revision); out != before {
		t.Errorf("at revision %s:\n%s\nwant\n%s", revision, out, before)
	}
}

// TestExportOfThePast says when the past cannot be read.
func TestExportOfThePast(t *testing.T) {
	p := startPlane(t)
	p.apply(t, garden)
	_, report := p.export(t)
	revision := regexp.MustCompile(`at revision (\d+)`).FindStringSubmatch(report)[1]
	plants := schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "plants"}
	release := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := p.objects.Resource(plants).Namespace("garden").Patch(t.Context(), "rose", "application/merge-patch+json", release,
		metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	watch, err := p.objects.Resource(definitions).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if err := p.objects.Resource(definitions).Delete(t.Context(), "plants.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for e := range watch.ResultChan() {
		if e.Type == "DELETED" {
			break
		}
	}
	fails := func(want string, args ...string) {
		t.Helper()
		if _, err := p.run(t.Context(), "", io.Discard, append([]string{"export"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("export %q: %v, want %q", args, err, want)
		}
	}
	fails("plants.example.com was served at revision "+revision+" and is not any more", "--revision", revision)
	p.export(t, "--revision", revision, "--resources", "secrets")
	client, err := p.storage.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	last, err := client.Get(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(t.Context(), last.Header.Revision); err != nil {
		t.Fatal(err)
	}
	// Lists that are cached are answered from memory; those of before are not.
	fails("secrets: revision 3: the revision is not stored any more: run the export again, for a later revision, or raise storage.history",
		"--revision", "3", "--resources", "secrets")
	fails("name one that has been", "--revision", "1000000")
	fails(`--revision is "x": want a number`, "--revision", "x")
	fails("--selector: ", "--selector", "a=b=c")
	p.export(t)
}

// TestExportOfForeignFields has Jobs and volumes be the same on another server, though they
// have UIDs in them.
func TestExportOfForeignFields(t *testing.T) {
	a, b := startPlane(t, kube.Batch(), kube.Core("persistentvolumes")), startPlane(t, kube.Batch(), kube.Core("persistentvolumes"))
	a.apply(t, `
apiVersion: batch/v1
kind: Job
metadata: {name: dig, namespace: default}
spec: {suspend: false, template: {spec: {restartPolicy: Never, containers: [{name: a, image: b}]}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: shed}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  hostPath: {path: /shed}
  claimRef: {namespace: default, name: tools, uid: 0d1e68a5-6ff9-41cf-8f9d-c9ed5e2df04f}
`)
	before, _ := a.export(t)
	contains(t, before, "batch.kubernetes.io/job-name: dig", "name: tools")
	if strings.Contains(before, "uid") || strings.Contains(before, "selector") {
		t.Errorf("a UID is in the export:\n%s", before)
	}
	b.apply(t, before)
	if after, _ := b.export(t); after != before {
		t.Errorf("exported again:\n%s\nfirst:\n%s", after, before)
	}
	contains(t, b.apply(t, before), "job.batch default/dig: unchanged")
	suspended := strings.Replace(before, "suspend: false", "suspend: true", 1)
	contains(t, b.apply(t, suspended), "job.batch default/dig: skipped (differs: spec.suspend)")
	contains(t, b.apply(t, suspended, "--on-conflict", "replace"), "job.batch default/dig: replaced", "1 replaced")
}

// TestExportOfWhatIsKept reads objects whose versions are not those of the storage as
// they are now, and says so.
func TestExportOfWhatIsKept(t *testing.T) {
	keeper := keeptest.NewMemory[fruit.Apple]()
	p := startPlane(t, apis.NewGroup(schema.GroupVersion{Group: "fruit.example.com", Version: "v1"}, nil, nil,
		apis.Resource[fruit.Apple, fruit.AppleList]("apples", apis.Status(), apis.Kept(keeper))))
	p.apply(t, "{apiVersion: fruit.example.com/v1, kind: Apple, metadata: {name: gala, namespace: default}, spec: {variety: Gala}}")
	out, report := p.export(t, "--resources", "*.fruit.example.com,namespaces")
	contains(t, out, "variety: Gala")
	contains(t, report, "apples.fruit.example.com: not at revision ", "its objects are kept elsewhere, with versions of their own")
	for range 10000 {
		keeper.Skip()
	}
	if again, _ := p.export(t, "--resources", "*.fruit.example.com,namespaces"); again != out {
		t.Errorf("with higher versions:\n%s\nwith lower ones:\n%s", again, out)
	}
}

// TestExportLosesOwners drops references that would have an object deleted elsewhere, and says so.
func TestExportLosesOwners(t *testing.T) {
	p := startPlane(t)
	p.apply(t, configMaps(1, "owner"))
	maps := p.client.CoreV1().ConfigMaps("default")
	owner, err := maps.Get(t.Context(), "c-00", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owned", Finalizers: []string{"example.com/hold"}, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "owned", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out, report := p.export(t, "--resources", "configmaps")
	contains(t, report, "1 objects have lost their owner references", "1 objects are being deleted: an import makes them as if they were not")
	if strings.Contains(out, "owner") && strings.Contains(out, "ownerReferences") || strings.Contains(out, "deletion") {
		t.Errorf("exported\n%s", out)
	}
	// An owner here is no difference, and is kept.
	owned.Name, owned.Finalizers, owned.Data = "kept", nil, map[string]string{"a": "b"}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	out, _ = p.export(t, "--resources", "configmaps")
	out, err = p.run(t.Context(), strings.Replace(out, "a: b\n", "a: c\n", 1), io.Discard, "import", "-f", "-", "--on-conflict", "replace")
	if err == nil || !strings.HasPrefix(err.Error(), "1 of 3 objects failed") {
		t.Errorf("the import ended with %v", err)
	}
	contains(t, out, "configmap default/kept: replaced", "configmap default/owned: failed: there is one that is being deleted")
	if got, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil || got.Data["a"] != "c" || len(got.OwnerReferences) != 1 {
		t.Errorf("the replaced object: %+v, %v", got, err)
	}
}

// TestExportWithStatus keeps the status, and an import writes it.
func TestExportWithStatus(t *testing.T) {
	a, b := startPlane(t), startPlane(t)
	a.apply(t, garden, "--with-status")
	before, _ := a.export(t, "--with-status", "--with-managed-fields")
	contains(t, before, "phase: Blooming", "managedFields:", "manager: sailplane-import")
	if strings.Contains(before, "acceptedNames") || strings.Contains(before, "phase: Active") {
		t.Errorf("what only a server writes is in the export:\n%s", before)
	}
	b.apply(t, before, "--with-status")
	plain, _ := b.export(t, "--with-status")
	contains(t, plain, "phase: Blooming")
	out := b.apply(t, strings.Replace(plain, "Blooming", "Withered", 1), "--with-status")
	contains(t, out, "plant.example.com garden/rose: skipped (differs: status.phase)")
	out = b.apply(t, strings.Replace(plain, "Blooming", "Withered", 1), "--with-status", "--on-conflict", "replace")
	contains(t, out, "plant.example.com garden/rose: replaced", " 1 replaced")
	rose, err := b.objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v2", Resource: "plants"}).Namespace("garden").
		Get(t.Context(), "rose", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(rose.Object, "status", "phase"); phase != "Withered" {
		t.Errorf("the phase is %q", phase)
	}
}
