package kube

import (
	"errors"
	"fmt"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// Apps is the part that serves resources of apps/v1: deployments, replicasets,
// statefulsets, daemonsets and controllerrevisions; without a name all of them.
func Apps(resources ...string) controlplane.Part { return part{apps(), resources} }

// Autoscaling is the part that serves horizontalpodautoscalers (autoscaling/v2).
func Autoscaling(resources ...string) controlplane.Part { return part{autoscaling(), resources} }

// Batch is the part that serves resources of batch/v1: jobs and cronjobs;
// without a name both.
func Batch(resources ...string) controlplane.Part { return part{batch(), resources} }

// Core is the part that serves resources of core/v1 that belong to nodes:
// pods, podtemplates, replicationcontrollers, nodes, persistentvolumes and
// persistentvolumeclaims; without a name all of them. The others of that group
// have parts in pkg/builtin/core.
func Core(resources ...string) controlplane.Part { return part{core(), resources} }

// Devices is the part that serves resources of resource.k8s.io/v1, dynamic
// resource allocation: deviceclasses, devicetaintrules, resourceclaims,
// resourceclaimtemplates and resourceslices; without a name all of them.
func Devices(resources ...string) controlplane.Part { return part{devices(), resources} }

// FlowControl is the part that serves resources of
// flowcontrol.apiserver.k8s.io/v1: flowschemas and
// prioritylevelconfigurations; without a name both. They are data only,
// unless the plane has fairness.PriorityAndFairness.
func FlowControl(resources ...string) controlplane.Part { return part{flowControl(), resources} }

// Networking is the part that serves resources of networking.k8s.io/v1:
// ingresses, ingressclasses, networkpolicies, ipaddresses and servicecidrs;
// without a name all of them.
func Networking(resources ...string) controlplane.Part { return part{networking(), resources} }

// Node is the part that serves runtimeclasses (node.k8s.io/v1).
func Node(resources ...string) controlplane.Part { return part{node(), resources} }

// Policy is the part that serves poddisruptionbudgets (policy/v1).
func Policy(resources ...string) controlplane.Part { return part{policy(), resources} }

// Scheduling is the part that serves priorityclasses (scheduling.k8s.io/v1).
func Scheduling(resources ...string) controlplane.Part { return part{scheduling(), resources} }

// Storage is the part that serves resources of storage.k8s.io/v1:
// storageclasses, volumeattachments, volumeattributesclasses, csidrivers,
// csinodes and csistoragecapacities; without a name all of them.
func Storage(resources ...string) controlplane.Part { return part{storage(), resources} }

// StorageMigration is the part that serves storageversionmigrations
// (storagemigration.k8s.io/v1). They are data only: nothing here rewrites stored
// objects in their latest version, and the status of a migration stays empty
// until a controller of yours writes it.
func StorageMigration(resources ...string) controlplane.Part {
	return part{storageMigration(), resources}
}

// Resources is the part that serves the named resources, each as kubectl names
// it: "pods", "deployments.apps", "ingresses.networking.k8s.io". A name that
// is not offered is an error of Build, which says what was probably meant.
func Resources(names ...string) controlplane.Part {
	return named("kube.Resources", "resource", names, func(name string) (part, error) {
		g, resource, err := find(name)
		return part{g, []string{resource}}, err
	})
}

// Groups is the part that serves all resources of the named API groups that
// this package has: "core" (or ""), "apps", "networking.k8s.io". A group that
// is not offered is an error of Build.
func Groups(names ...string) controlplane.Part {
	return named("kube.Groups", "group", names, func(name string) (part, error) {
		g, err := findGroup(name)
		return part{group: g}, err
	})
}

// named selects the parts that are found by name.
func named(caller, what string, names []string, find func(name string) (part, error)) selection {
	return selection{caller, func(p *controlplane.Plan) error {
		if len(names) == 0 {
			return fmt.Errorf("it names no %s: name at least one, or use kube.All", what)
		}
		var errs []error
		for _, name := range names {
			found, err := find(name)
			if err == nil {
				err = found.Install(p)
			}
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}}
}

// All is the part that serves everything this package has.
func All() controlplane.Part {
	return selection{"kube.All", func(p *controlplane.Plan) error {
		for _, g := range every() {
			if err := (part{group: g}).Install(p); err != nil {
				return fmt.Errorf("group %q: %w", g.name(), err)
			}
		}
		return nil
	}}
}

// selection is a part over several groups.
type selection struct {
	name    string
	install func(*controlplane.Plan) error
}

// PartName is what errors call the part.
func (s selection) PartName() string { return s.name }

// Install serves what is selected.
func (s selection) Install(p *controlplane.Plan) error { return s.install(p) }
