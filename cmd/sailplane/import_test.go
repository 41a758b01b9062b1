package main

import (
	"context"
	"io"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestImportConflicts has an object that is there and differs, one that is there, and a new one.
func TestImportConflicts(t *testing.T) {
	documents := configMaps(3, "theirs")
	cases := map[string]struct {
		line, sum, err string
		after          string
	}{
		"skip":    {"configmap default/c-00: skipped (differs: data.a, data[\"x.y\"])", "1 created, 1 unchanged, 0 replaced, 1 skipped, 0 failed", "", "mine"},
		"replace": {"configmap default/c-00: replaced", "1 created, 1 unchanged, 1 replaced, 0 skipped, 0 failed", "", "theirs"},
		"fail": {
			"configmap default/c-00: failed: differs: data.a, data[\"x.y\"]", "1 created, 1 unchanged, 0 replaced, 0 skipped, 1 differ, 0 failed",
			"1 of 3 objects failed", "mine",
		},
	}
	for mode, c := range cases {
		t.Run(mode, func(t *testing.T) {
			p := startPlane(t)
			p.apply(t, strings.NewReplacer("{a:", "{x.y: z, a:", "theirs", "mine").Replace(configMaps(1, "theirs")))
			p.apply(t, strings.Replace(configMaps(2, "theirs"), "name: c-00", "name: other", 1))
			for _, dry := range []bool{true, false} {
				args := []string{"import", "-f", "-", "--on-conflict", mode}
				line, sum := c.line, c.sum
				if dry {
					args = append(args, "--dry-run")
					line = strings.Replace(line, ": replaced", ": would be replaced", 1)
					sum = strings.NewReplacer("created", "would be created", "replaced", "would be replaced").Replace(sum)
				}
				out, err := p.run(t.Context(), documents, io.Discard, args...)
				contains(t, out, line, sum, "configmap default/c-01: unchanged")
				if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
					t.Errorf("dry run %v: %v, want %q", dry, err, c.err)
				}
			}
			got, err := p.client.CoreV1().ConfigMaps("default").Get(t.Context(), "c-00", metav1.GetOptions{})
			if err != nil || got.Data["a"] != c.after {
				t.Errorf("the object has %v, want %q: %v", got.Data, c.after, err)
			}
		})
	}
}

// TestImportByHand takes what the server fills in for no difference.
func TestImportByHand(t *testing.T) {
	p := startPlane(t)
	byHand := `
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: default}
stringData: {door: "1234"}
`
	contains(t, p.apply(t, byHand), "secret default/keys: created")
	contains(t, p.apply(t, byHand), "secret default/keys: unchanged")
	contains(t, p.apply(t, byHand, "--on-conflict", "replace"), "secret default/keys: unchanged")
	contains(t, p.apply(t, strings.Replace(byHand, "1234", "4321", 1)), "secret default/keys: skipped (differs: data.door)")
}

// TestImportDryRun changes nothing, and says what cannot be checked yet.
func TestImportDryRun(t *testing.T) {
	p := startPlane(t)
	before, _ := p.export(t)
	out := p.apply(t, garden, "--dry-run")
	contains(
		t, out, "namespace garden: would be created", "clusterrole.rbac.authorization.k8s.io system:Gardener: would be created",
		"secret garden/keys: would be created; not checked: its namespace does not exist yet",
		"plant.example.com garden/rose: would be created; not checked: its definition does not exist yet",
		"10 objects: 10 would be created, 0 unchanged, 0 would be replaced, 0 skipped, 0 failed",
	)
	if after, _ := p.export(t); after != before {
		t.Errorf("after a dry run:\n%s\nbefore:\n%s", after, before)
	}
	p.apply(t, garden)
	contains(t, p.apply(t, garden, "--dry-run"), " 0 would be created, 10 unchanged")
}

// TestImportBroken names the document that is wrong, and writes none.
func TestImportBroken(t *testing.T) {
	p := startPlane(t)
	one := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: default}\n"
	cases := map[string]struct{ documents, want string }{
		"no YAML":       {one + "---\na: [\n", "standard input: document 2: "},
		"a key twice":   {one + "---\n# empty\n---\na: b\na: c\n", `standard input: document 2: yaml: unmarshal errors:`},
		"no kind":       {"apiVersion: v1\n", "standard input: document 1 is no object: "},
		"no apiVersion": {"kind: ConfigMap\nmetadata: {name: a}\n", "standard input: document 1: apiVersion is missing"},
		"no name":       {"apiVersion: v1\nkind: ConfigMap\n", "standard input: document 1: metadata.name is missing"},
		"a list":        {"apiVersion: v1\nkind: List\nitems: []\n", "standard input: document 1 is a list: write a document for each object"},
		"twice":         {one + "--- \n" + one, "standard input: document 2 is configmap default/one again, which standard input: document 1 is, too"},
		"too large":     {"a: " + strings.Repeat("a", 13<<20), "standard input: document 1 is larger than 12 MiB"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := p.run(t.Context(), c.documents, io.Discard, "import", "-f", "-")
			if err == nil || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("%v, want %q\n%s", err, c.want, out)
			}
		})
	}
	if _, err := p.client.CoreV1().ConfigMaps("default").Get(t.Context(), "one", metav1.GetOptions{}); err == nil {
		t.Error("an object was written")
	}
}

// TestImportFailures goes on after failures, and says them.
func TestImportFailures(t *testing.T) {
	p := startPlane(t)
	documents := `
{apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: default}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: nowhere, namespace: missing}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: lost}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: inside, namespace: default}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: typo, namespace: default}, daat: {a: b}}
---
{apiVersion: example.com/v1, kind: Gizmo, metadata: {name: a, namespace: default}}
`
	out, err := p.run(t.Context(), documents, io.Discard, "import", "-f", "-")
	if err == nil || !strings.HasPrefix(err.Error(), "5 of 6 objects failed") {
		t.Errorf("%v", err)
	}
	contains(
		t, out, "configmap default/good: created", `configmap missing/nowhere: failed: namespaces "missing" not found`,
		"configmap lost: failed: metadata.namespace is missing: configmaps are in namespaces",
		`namespace default/inside: failed: metadata.namespace is "default", but namespaces are in no namespace`,
		`configmap default/typo: failed: `, `unknown field "daat"`,
		"gizmo.example.com default/a: failed: the server has no kind Gizmo in example.com/v1",
		"6 objects: 1 created, 0 unchanged, 0 replaced, 0 skipped, 5 failed",
	)
}

// TestImportDefinitions says which definition is not served.
func TestImportDefinitions(t *testing.T) {
	p := startPlane(t)
	p.apply(t, garden)
	start := strings.Index(garden, "apiVersion: apiextensions.k8s.io/v1")
	definition, _, _ := strings.Cut(garden[start:], "---")
	taken := strings.NewReplacer("plants.example.com", "weeds.example.com", "plural: plants", "plural: weeds").Replace(definition)
	out, err := p.run(t.Context(), taken, io.Discard, "import", "-f", "-")
	if err == nil {
		t.Error("no error")
	}
	contains(t, out, "customresourcedefinition.apiextensions.k8s.io weeds.example.com: failed: written, but it is not served: "+
		`its names are not accepted: "PlantList" is already in use`)
	changed := strings.Replace(definition, "served: true", "served: false", 1)
	contains(t, p.apply(t, changed), "plants.example.com: skipped (differs: spec.versions[0].served)")
	contains(t, p.apply(t, changed, "--on-conflict", "replace"), "plants.example.com: replaced")
}

// TestImportInterrupted goes on where it was.
func TestImportInterrupted(t *testing.T) {
	p := startPlane(t)
	ctx, cancel := context.WithCancel(t.Context())
	interrupt := func(name string) {
		if name == "c-05" {
			cancel()
		}
	}
	p.created.Store(&interrupt)
	args := []string{"import", "-f", "-", "--workers", "1"}
	out, err := p.run(ctx, configMaps(10, "a"), io.Discard, args...)
	if err == nil || err.Error() != "interrupted: to continue, run the import again" {
		t.Fatalf("interrupted: %v", err)
	}
	contains(t, out, "c-00: created", "c-04: created")
	if strings.Contains(out, "c-09") || strings.Contains(out, "failed") {
		t.Errorf("interrupted:\n%s", out)
	}
	p.created.Store(nil)
	contains(t, p.apply(t, configMaps(10, "a")), "c-04: unchanged", "c-09: created")
	contains(t, p.apply(t, configMaps(10, "a")), "10 objects: 0 created, 10 unchanged")
}

// TestTransferFlags are about what was given.
func TestTransferFlags(t *testing.T) {
	p := startPlane(t)
	cases := map[string]struct {
		args []string
		want string
	}{
		"no file":          {[]string{"import"}, "-f: name a file, a directory, or -"},
		"a missing file":   {[]string{"import", "-f", "missing.yaml"}, "missing.yaml: no such file"},
		"a word":           {[]string{"import", "-f", "-", "--on-conflict", "merge"}, "want one of: skip, replace, fail"},
		"no workers":       {[]string{"import", "-f", "-", "--workers", "0"}, "--workers: want a number above 0"},
		"no pages":         {[]string{"export", "--page-size", "0"}, "--page-size: want a number above 0"},
		"unknown resource": {[]string{"export", "--resources", "gizmos.example.com"}, `the server has no resource that is "gizmos.example.com"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := p.run(t.Context(), "", io.Discard, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
