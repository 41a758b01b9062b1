package kube

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// apiGroup says what an API group is made of.
type apiGroup struct {
	gv          schema.GroupVersion
	definitions common.GetOpenAPIDefinitions
	// rules registers the validation that the types declare; may be nil.
	rules func(*runtime.Scheme) error
	// extend adds what a resource needs beside its store; may be nil.
	extend    func(*controlplane.Plan, controlplane.Resource) controlplane.Resource
	resources []func() *apis.Definition
}

// every is all groups, in the order in which kube-apiserver ranks them.
func every() []apiGroup {
	return []apiGroup{
		core(), apps(), autoscaling(), batch(), networking(), policy(), storage(), flowControl(), scheduling(), node(), devices(),
		storageMigration(),
	}
}

// shared holds the groups in use, which are the same for every plane. It is a map that
// starts empty, and not a variable per group made by sync.OnceValue, because the linker
// keeps what the start of a package refers to: a program would link every group.
var shared sync.Map //nolint:gochecknoglobals // schema.GroupVersion -> *apis.Group, each a constant

// group is the group with its scheme and definitions, made once per process.
func (g apiGroup) group() *apis.Group {
	made, ok := shared.Load(g.gv)
	if !ok {
		var resources []*apis.Definition
		for _, define := range g.resources {
			resources = append(resources, define())
		}
		made, _ = shared.LoadOrStore(g.gv, apis.NewGroup(g.gv, g.rules, g.definitions, resources...))
	}
	return made.(*apis.Group) //nolint:forcetypeassert // nothing else is stored
}

// name is what errors and [Groups] call the group.
func (g apiGroup) name() string { return cmp.Or(g.gv.Group, "core") }

// qualified is the name of a resource as [Resources] takes it.
func (g apiGroup) qualified(resource string) string {
	return schema.GroupResource{Group: g.gv.Group, Resource: resource}.String()
}

// part serves some or all resources of a group.
type part struct {
	group apiGroup
	names []string // none: all
}

// PartName is what errors call the part.
func (p part) PartName() string { return "kube " + p.group.gv.String() }

// Install serves the resources.
func (p part) Install(plan *controlplane.Plan) error {
	return p.serve(plan, p.group.group())
}

// serve serves the resources of the group that g is.
func (p part) serve(plan *controlplane.Plan, g *apis.Group) error {
	var errs []error
	var served []controlplane.Resource
	for _, name := range p.names {
		if !slices.ContainsFunc(g.Resources(), func(d *apis.Definition) bool { return d.Name() == name }) {
			errs = append(errs, p.group.unknown(name))
		}
	}
	for _, d := range g.Resources() {
		if len(p.names) > 0 && !slices.Contains(p.names, d.Name()) {
			continue
		}
		errs = append(errs, d.Err())
		served = append(served, d.Resource(p.group.gv))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range served {
		if p.group.extend != nil {
			served[i] = p.group.extend(plan, served[i])
		}
	}
	plan.Serve(g.API(), served...)
	return nil
}

// unknown is the error for a resource that the group does not have.
func (g apiGroup) unknown(name string) error {
	if home, ok := elsewhere()[g.qualified(name)]; ok {
		return fmt.Errorf("resource %q: %s serves it: use that package", name, home)
	}
	var names []string
	for _, d := range g.group().Resources() {
		names = append(names, d.Name())
	}
	return fmt.Errorf("resource %q: %s has no such resource; it has %s", name, g.gv, strings.Join(names, ", "))
}
