package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

type gvk = schema.GroupVersionKind

// check returns everything that is wrong with what the parts declared.
func (p *Plan) check(storage Storage) error {
	errs := p.checkGroups()
	errs = append(errs, p.checkNames()...)
	errs = append(errs, p.checkAdmission()...)
	errs = append(errs, p.checkOutlets()...)
	errs = append(errs, p.checkFlow()...)
	errs = append(errs, p.checkFilters()...)
	errs = append(errs, duplicates("handler of host", p.hosts)...)
	errs = append(errs, p.checkHandlers()...)
	errs = append(errs, p.checkServices()...)
	errs = append(errs, single("counter of aggregated objects", p.counters))
	errs = append(errs, checkWork("work", p.work)...)
	for _, w := range p.middleware {
		if w.slot < Outermost || w.slot > Innermost {
			errs = append(errs, fmt.Errorf("part %q: middleware %q: unknown slot %d", w.part, w.name, w.slot))
		}
	}
	for _, n := range p.needs {
		if !p.Serves(n.value) {
			errs = append(errs, fmt.Errorf("part %q: needs %s, which no part serves: add %s", n.part, n.value.Kind, n.name))
		}
	}
	return errors.Join(append(errs, p.checkElected(storage))...)
}

// checkGroups finds groups in two APIs, resources twice and resources without a version.
func (p *Plan) checkGroups() []error {
	var errs []error
	apis := map[string]served{}
	seen := map[string]string{}
	for _, s := range p.served {
		if s.api == nil {
			errs = append(errs, fmt.Errorf("part %q: serves a nil API", s.part))
			continue
		}
		if first, ok := apis[s.api.group]; !ok {
			apis[s.api.group] = s
			errs = append(errs, s.api.check(s.part))
		} else if first.api != s.api {
			errs = append(errs, first.checkJoin(s))
		}
		for _, r := range s.resources {
			key := r.Name + "." + s.api.group
			if other, ok := seen[key]; ok {
				errs = append(errs, fmt.Errorf("part %q: resource %q: part %q already serves it", s.part, key, other))
			}
			seen[key] = s.part
			if len(r.Versions) == 0 || r.Build == nil {
				errs = append(errs, fmt.Errorf("part %q: resource %q: needs a version and a Build function", s.part, key))
			}
			for _, v := range r.Versions {
				if !slices.Contains(s.api.versions, v) {
					errs = append(errs, fmt.Errorf("part %q: resource %q: the group has no version %q, only %s",
						s.part, key, v, strings.Join(s.api.versions, ", ")))
				}
			}
		}
	}
	return errs
}

// checkJoin returns why the resources of two API values cannot be in one group.
func (s served) checkJoin(other served) error {
	if !slices.Equal(s.api.versions, other.api.versions) {
		return fmt.Errorf("part %q: group %q: part %q serves versions %s, this part %s: both must serve the same, in the same order",
			other.part, s.api.group, s.part, strings.Join(s.api.versions, ", "), strings.Join(other.api.versions, ", "))
	}
	if s.api.config.Protobuf != other.api.config.Protobuf {
		return fmt.Errorf("part %q: group %q: only one of this part and part %q has protobuf methods: a group has one storage format",
			other.part, s.api.group, s.part)
	}
	return other.api.check(other.part)
}

// checkNames finds names that are given twice among things of one kind.
func (p *Plan) checkNames() []error {
	var errs []error
	errs = append(errs, duplicates("admission", p.admission)...)
	errs = append(errs, duplicates("guard", p.guards)...)
	errs = append(errs, duplicates("authenticator", p.authenticators)...)
	errs = append(errs, duplicates("authorizer", p.authorizers)...)
	errs = append(errs, duplicates("server", append(slices.Clone(p.below), p.above...))...)
	seen := map[string]string{}
	for _, w := range p.middleware {
		if w.wrap == nil {
			errs = append(errs, fmt.Errorf("part %q: middleware %q is nil", w.part, w.name))
		}
		if other, ok := seen[w.name]; ok {
			errs = append(errs, fmt.Errorf("part %q: middleware %q: part %q already has one with that name", w.part, w.name, other))
		}
		seen[w.name] = w.part
	}
	return errs
}

func duplicates[T any](kind string, list []named[T]) []error {
	var errs []error
	seen := map[string]string{}
	for _, n := range list {
		if nilValue(n.value) {
			errs = append(errs, fmt.Errorf("part %q: %s %q is nil", n.part, kind, n.name))
		}
		if n.name == "" {
			errs = append(errs, fmt.Errorf("part %q: %s: the name is empty", n.part, kind))
		}
		if other, ok := seen[n.name]; ok {
			errs = append(errs, fmt.Errorf("part %q: %s %q: part %q already has one with that name", n.part, kind, n.name, other))
		}
		seen[n.name] = n.part
	}
	return errs
}

// checkAdmission finds plugins that ask for informers of types which no part
// serves: their informers would never sync and every request would wait. It
// initialises each plugin with informers that reach nothing, and notes those that
// the plugin asks for.
func (p *Plan) checkAdmission() []error {
	// One client for all plugins: it has a part for every group version of Kubernetes.
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://nowhere", Transport: unreachable{}})
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, a := range p.admission {
		if nilValue(a.value) {
			continue // reported with the names
		}
		wanted, err := informersOf(a.value, client)
		if err != nil {
			errs = append(errs, fmt.Errorf("part %q: admission %q: %w", a.part, a.name, err))
		}
		for _, kind := range wanted {
			if !p.Serves(kind) {
				errs = append(errs, fmt.Errorf("part %q: admission %q watches %s, which no part serves: "+
					"add the part that serves it, or remove the plugin", a.part, a.name, kind))
			}
		}
	}
	return errs
}

func nilValue(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || (r.Kind() == reflect.Pointer || r.Kind() == reflect.Func || r.Kind() == reflect.Interface) && r.IsNil()
}

// informersOf initialises a plugin with a client that reaches nothing, and returns
// the kinds of the informers it asked for.
func informersOf(plugin admission.Interface, client kubernetes.Interface) ([]gvk, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	initializer.New(client, nil, factory, nil, utilfeature.DefaultFeatureGate, effectiveVersion(), ended.Done(),
		meta.MultiRESTMapper{}).Initialize(plugin)
	factory.StartWithContext(ended)
	defer factory.Shutdown()
	var kinds []gvk
	for t := range factory.WaitForCacheSyncWithContext(ended).Synced {
		obj, ok := reflect.New(t.Elem()).Interface().(runtime.Object)
		if !ok {
			continue
		}
		known, _, err := scheme.Scheme.ObjectKinds(obj)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, known[0])
	}
	slices.SortFunc(kinds, func(a, b gvk) int { return strings.Compare(a.String(), b.String()) })
	return kinds, nil
}

// unreachable is a transport that reaches nothing.
type unreachable struct{}

func (unreachable) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("not a server")
}
