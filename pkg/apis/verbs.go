package apis

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/registry/rest"
)

// The installer of k8s.io/apiserver finds out what a resource can do by type
// assertion, so a resource without a verb must be of a type without its method.
// A struct that embeds one of these interfaces has the methods of the interface
// only, whatever is behind it.
type (
	// noVerbs is what a resource is besides its verbs.
	noVerbs interface {
		rest.StorageWithReadiness
		rest.Scoper
		rest.TableConvertor
		rest.SingularNameProvider
		rest.ShortNamesProvider
		rest.CategoriesProvider
		rest.StorageVersionProvider
		rest.ResetFieldsStrategy
	}
	createOnly interface {
		noVerbs
		rest.Creater
	}
	getOnly interface {
		noVerbs
		rest.Getter
	}
	listOnly interface {
		noVerbs
		rest.Lister
	}
	getList interface {
		getOnly
		rest.Lister
	}
	readOnly interface {
		getList
		rest.Watcher
	}
	readCreate interface {
		readOnly
		rest.Creater
	}
	readCreateDelete interface {
		readCreate
		deleter
	}
	readCreateDeleteAll interface {
		readCreateDelete
		rest.CollectionDeleter
	}
	readDelete interface {
		readOnly
		deleter
	}
	readDeleteAll interface {
		readDelete
		rest.CollectionDeleter
	}
	readUpdate interface {
		readOnly
		rest.Updater
	}
	noDelete interface {
		readCreate
		rest.Updater
	}
	noDeleteAll interface {
		noDelete
		deleter
	}
	noWatch interface {
		getList
		rest.CreaterUpdater
		deleter
		rest.CollectionDeleter
	}
	deleter interface {
		rest.GracefulDeleter
		rest.MayReturnFullObjectDeleter
		rest.CorruptObjectDeleterProvider
	}
)

// verbSet is a combination of verbs that can be served, and how.
type verbSet struct {
	verbs    string
	restrict func(*storage) rest.Storage
}

// verbSets are the combinations that make sense. Patch is wherever get and
// update are: a rest.Patcher is nothing but the two.
func verbSets() []verbSet {
	return []verbSet{
		{"create get list watch update patch delete deletecollection", func(s *storage) rest.Storage { return s }},
		{"create get list watch update patch delete", func(s *storage) rest.Storage { return struct{ noDeleteAll }{s} }},
		{"create get list watch update patch", func(s *storage) rest.Storage { return struct{ noDelete }{s} }},
		{"create get list update patch delete deletecollection", func(s *storage) rest.Storage { return struct{ noWatch }{s} }},
		{"create get list watch delete deletecollection", func(s *storage) rest.Storage { return struct{ readCreateDeleteAll }{s} }},
		{"create get list watch delete", func(s *storage) rest.Storage { return struct{ readCreateDelete }{s} }},
		{"create get list watch", func(s *storage) rest.Storage { return struct{ readCreate }{s} }},
		{"get list watch update patch", func(s *storage) rest.Storage { return struct{ readUpdate }{s} }},
		{"get list watch delete deletecollection", func(s *storage) rest.Storage { return struct{ readDeleteAll }{s} }},
		{"get list watch delete", func(s *storage) rest.Storage { return struct{ readDelete }{s} }},
		{"get list watch", func(s *storage) rest.Storage { return struct{ readOnly }{s} }},
		{"get list", func(s *storage) rest.Storage { return struct{ getList }{s} }},
		{"get", func(s *storage) rest.Storage { return struct{ getOnly }{s} }},
		{"list", func(s *storage) rest.Storage { return struct{ listOnly }{s} }},
		{"create", func(s *storage) rest.Storage { return struct{ createOnly }{s} }},
	}
}

// verbSet is the combination asked for; without Verbs it is the first, all.
func (d *Definition) verbSet() (verbSet, error) {
	sets := verbSets()
	if d.verbs == nil {
		return sets[0], nil
	}
	want := slices.Compact(slices.Sorted(slices.Values(d.verbs)))
	var known []string
	for _, set := range sets {
		if slices.Equal(want, slices.Sorted(strings.FieldsSeq(set.verbs))) {
			return set, nil
		}
		known = append(known, strings.ReplaceAll(set.verbs, " ", ","))
	}
	return verbSet{}, fmt.Errorf("verbs %q: not a supported set: use one of %s", strings.Join(d.verbs, ","), strings.Join(known, "; "))
}
