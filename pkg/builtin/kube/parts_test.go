package kube_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/discovery"

	"github.com/sailplane-dev/sailplane/pkg/builtin/kube"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestPick(t *testing.T) {
	cases := map[string]struct {
		reason string
		parts  []controlplane.Part
		want   string
	}{
		"one of a group":  {"a part names resources of its group", []controlplane.Part{kube.Apps("deployments")}, "deployments.apps"},
		"twice":           {"parts share a group", []controlplane.Part{kube.Apps("deployments"), kube.Apps("replicasets")}, "deployments.apps replicasets.apps"},
		"whole group":     {"without a name it is all", []controlplane.Part{kube.Batch()}, "cronjobs.batch jobs.batch"},
		"by name":         {"names are those of kubectl", []controlplane.Part{kube.Resources("pods", "jobs.batch", "priorityclasses.scheduling.k8s.io")}, "jobs.batch pods priorityclasses.scheduling.k8s.io"},
		"groups":          {"groups go by their API name", []controlplane.Part{kube.Groups("policy", "node.k8s.io")}, "poddisruptionbudgets.policy runtimeclasses.node.k8s.io"},
		"the other parts": {"every group has its part", []controlplane.Part{kube.Core("nodes"), kube.Autoscaling(), kube.Networking("ingresses"), kube.Storage("storageclasses"), kube.FlowControl("flowschemas"), kube.Scheduling(), kube.Node(), kube.Policy(), kube.Devices("devicetaintrules"), kube.StorageMigration()}, "devicetaintrules.resource.k8s.io flowschemas.flowcontrol.apiserver.k8s.io horizontalpodautoscalers.autoscaling ingresses.networking.k8s.io nodes poddisruptionbudgets.policy priorityclasses.scheduling.k8s.io runtimeclasses.node.k8s.io storageclasses.storage.k8s.io storageversionmigrations.storagemigration.k8s.io"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, err := discovery.NewDiscoveryClientForConfig(serve(t, tc.parts...))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name := range discover(t, client) {
				got = append(got, name)
			}
			slices.Sort(got)
			if diff := cmp.Diff(strings.Fields(tc.want), got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		part controlplane.Part
		want string
	}{
		"misspelt":       {kube.Resources("deploymets.apps"), `resource "deploymets.apps": kube has no such resource; did you mean deployments.apps?`},
		"without group":  {kube.Resources("statefulset"), `resource "statefulset": kube has no such resource; did you mean statefulsets.apps?`},
		"abbreviated":    {kube.Resources("deploy"), `did you mean deployments.apps?`},
		"wrong group":    {kube.Resources("jobs.apps"), `did you mean jobs.batch`},
		"nothing near":   {kube.Resources("bananas"), `resource "bananas": kube has no such resource; it has pods, podtemplates,`},
		"has a part":     {kube.Resources("configmaps"), `resource "configmaps": pkg/builtin/core serves it: use that`},
		"has a package":  {kube.Resources("leases.coordination.k8s.io"), `pkg/builtin/coordination serves it`},
		"none":           {kube.Resources(), `part "kube.Resources": it names no resource`},
		"group":          {kube.Groups("app"), `group "app": kube has no such group; did you mean apps`},
		"group elsehere": {kube.Groups("coordination.k8s.io"), `group "coordination.k8s.io": pkg/builtin/coordination serves it: use that`},
		"no group":       {kube.Groups(), `part "kube.Groups": it names no group`},
		"of a group":     {kube.Apps("deployment"), `part "kube apps/v1": resource "deployment": apps/v1 has no such resource; it has deployments,`},
		"trust bundles":  {kube.Resources("clustertrustbundles.certificates.k8s.io"), `pkg/builtin/certificates serves it: use that`},
		"core":           {kube.Core("secrets"), `part "kube v1": resource "secrets": pkg/builtin/core serves it: use that`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := controlplane.New("mistakes").Storage(memory.Store{}).With(tc.part).Build()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got error %v, want %q", err, tc.want)
			}
		})
	}
}
