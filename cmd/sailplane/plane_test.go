package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/admissionregistration"
	"github.com/sailplane-dev/sailplane/pkg/builtin/coordination"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/lifecycle"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// garden has objects in an order in which they could not be made.
const garden = `# what a garden has
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.elsewhere.example.com}
spec: {group: elsewhere.example.com, version: v1, groupPriorityMinimum: 10, versionPriority: 10, service: {namespace: garden, name: far}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: strict}
webhooks:
- name: strict.example.com
  clientConfig: {url: "https://127.0.0.1:1"}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  sideEffects: None
  admissionReviewVersions: [v1]
  namespaceSelector: {matchLabels: {strict: "yes"}}
---
apiVersion: example.com/v2
kind: Plant
metadata: {name: rose, namespace: garden, finalizers: [example.com/hold]}
spec: {height: 3, ratio: 0.5, big: 9007199254740993, date: "2026-11-28", on: "yes"}
status: {phase: Blooming}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "system:Gardener"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:Gardener"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "oidc:ann"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "system:Gardener"}
rules: [{apiGroups: [example.com], resources: [plants], verbs: ["*"]}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: notes, namespace: garden}
data: {text: "---\nno document\n--- \n", tab: "a\tb", number: "0o14"}
---
apiVersion: v1
kind: Secret
metadata: {name: keys, namespace: garden}
data: {door: AAEC/f7/, empty: ""}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: plants.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: plants, kind: Plant}
  versions:
  - name: v1
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  - name: v2
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: garden}
---
apiVersion: v1
kind: Namespace
metadata: {name: garden, labels: {season: autumn}}
---
`

// plane is a running server for exports and imports.
type plane struct {
	storage    controlplane.Backend
	kubeconfig string
	client     *kubernetes.Clientset
	objects    dynamic.Interface
	// created is told about every object before it is created.
	created atomic.Pointer[func(name string)]
}

func startPlane(t *testing.T, more ...controlplane.Part) *plane {
	t.Helper()
	p := &plane{storage: memory.Store{}.Open(), kubeconfig: filepath.Join(t.TempDir(), "admin.kubeconfig")}
	server := startServer(t, opened{p.storage}, append(more,
		authn.Admin{Kubeconfig: p.kubeconfig}, authz.RBAC{}, core.Namespaces{}, core.ConfigMaps{}, core.Secrets{}, core.ServiceAccounts{},
		core.Events{}, coordination.Leases{}, lifecycle.RootCA{}, aggregator.APIServices{},
		crd.Definitions{}, admissionregistration.All(), admit.ValidatingWebhooks{},
		admit.Validate("creations", func(_ context.Context, a admission.Attributes) error {
			if tell := p.created.Load(); tell != nil && a.GetOperation() == admission.Create {
				(*tell)(a.GetName())
			}
			return nil
		}),
	)...)
	var err error
	if p.client, err = kubernetes.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	if p.objects, err = dynamic.NewForConfig(server.ClientConfig()); err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs a command with the plane's kubeconfig, and returns what it prints: the
// report of an export is on standard error.
func (p *plane) run(ctx context.Context, in string, report io.Writer, args ...string) (string, error) {
	var out bytes.Buffer
	c := command()
	c.SetIn(strings.NewReader(in))
	c.SetOut(&out)
	c.SetErr(report)
	c.SetArgs(append(args, "--kubeconfig", p.kubeconfig))
	err := c.ExecuteContext(ctx)
	return out.String(), err
}

// export returns an export and its report.
func (p *plane) export(t *testing.T, args ...string) (objects, report string) {
	t.Helper()
	var b bytes.Buffer
	out, err := p.run(t.Context(), "", &b, append([]string{"export"}, args...)...)
	if err != nil {
		t.Fatalf("export %q: %v\n%s", args, err, &b)
	}
	return out, b.String()
}

// apply imports documents, without failures.
func (p *plane) apply(t *testing.T, documents string, args ...string) string {
	t.Helper()
	out, err := p.run(t.Context(), documents, io.Discard, append([]string{"import", "-f", "-"}, args...)...)
	if err != nil {
		t.Fatalf("import %q: %v\n%s", args, err, out)
	}
	return out
}

// configMaps makes ConfigMaps in a namespace.
func configMaps(n int, value string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-%02d, namespace: default}\ndata: {a: %q}\n", i, value)
	}
	return b.String()
}
