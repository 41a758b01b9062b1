package apis

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/meta"
	"github.com/sailplane-dev/sailplane/pkg/internal/openapi/reflected"
)

// openAPI is the definitions of the group on top of those every group needs.
func (g *Group) openAPI() (common.GetOpenAPIDefinitions, error) {
	own := g.definitions
	if own == nil {
		roots, err := g.goTypes()
		if err != nil {
			return nil, err
		}
		var options []reflected.Option
		for _, r := range g.resources {
			options = append(options, r.Schema()...)
		}
		if own, err = reflected.Build(meta.Definitions, roots, options...); err != nil {
			return nil, err
		}
	}
	return meta.And(own), nil
}

// goTypes are the Go types of the group's own kinds: those of the resources and
// those that addToScheme registers. Every group version has kinds of meta/v1 too.
func (g *Group) goTypes() ([]reflect.Type, error) {
	scheme, err := g.api.Scheme()
	if err != nil {
		return nil, err
	}
	set := map[reflect.Type]bool{}
	for _, gv := range g.api.GroupVersions() {
		for _, t := range scheme.KnownTypes(gv) {
			if t.PkgPath() != reflect.TypeFor[metav1.Status]().PkgPath() {
				set[t] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b reflect.Type) int {
		return strings.Compare(a.PkgPath()+"."+a.Name(), b.PkgPath()+"."+b.Name())
	}), nil
}
