package verify

import (
	"cmp"
	"math"
	"slices"

	"github.com/sailplane-dev/sailplane/test/faults/history"
)

// version is a write to a key that is known to have happened.
type version struct {
	revision     int64
	value        string // "": deleted
	began        int64  // when the write was asked for; MaxInt64: not known
	acknowledged int64  // when; MaxInt64: never
	seen         int64  // when a read first showed it; MaxInt64: never
}

// known is what is known to have been written to each key, by revision, and
// the deletes that may have happened.
type known struct {
	versions map[string][]version
	perhaps  []*history.Op
}

func knownOf(ops []history.Op) known {
	found := map[string]map[int64]version{}
	merge := func(key string, v version) {
		if found[key] == nil {
			found[key] = map[int64]version{}
		}
		if old, exists := found[key][v.revision]; exists {
			v.began, v.acknowledged, v.seen = min(v.began, old.began), min(v.acknowledged, old.acknowledged), min(v.seen, old.seen)
		}
		found[key][v.revision] = v
	}
	k := known{versions: map[string][]version{}}
	for i := range ops {
		op := &ops[i]
		if op.IsEvent() {
			continue
		}
		switch {
		case op.IsWrite() && op.Outcome == history.OK:
			merge(op.Key, version{op.Revision, op.Value, op.Call, op.Return, math.MaxInt64})
		case op.Kind == history.Delete && op.Outcome == history.Unknown:
			k.perhaps = append(k.perhaps, op)
		}
		for _, item := range op.Items {
			merge(item.Key, version{item.Revision, item.Value, math.MaxInt64, math.MaxInt64, op.Return})
		}
	}
	for key, byRevision := range found {
		for _, v := range byRevision {
			k.versions[key] = append(k.versions[key], v)
		}
		slices.SortFunc(k.versions[key], func(a, b version) int { return cmp.Compare(a.revision, b.revision) })
	}
	return k
}

// newest is the newest version of a key that an answer of a revision must show.
func (k known) newest(key string, revision int64) (v version, found bool) {
	for _, each := range k.versions[key] {
		if each.revision <= revision {
			v, found = each, true
		}
	}
	return v, found
}

// early says whether a read that does not show a key shows a delete after its revision.
func (k known) early(key string, read *history.Op) bool {
	return slices.ContainsFunc(k.versions[key], func(v version) bool {
		return v.value == "" && v.revision > read.Revision && v.began <= read.Return
	})
}

// mayBeDeleted says whether an unanswered delete may explain that a read does
// not show a version.
func (k known) mayBeDeleted(key string, v version, read *history.Op) bool {
	return slices.ContainsFunc(k.perhaps, func(d *history.Op) bool {
		return d.Key == key && d.Compare == v.revision && d.Call <= read.Return
	})
}

// content compares what each read shows with what is known to have been
// written up to its revision.
func content(f *findings, ops []history.Op) {
	k := knownOf(ops)
	for i := range ops {
		op := &ops[i]
		refused := op.Outcome == history.Refused && op.Kind != history.Create
		read := op.Outcome == history.OK && (op.Kind == history.Get || op.Kind == history.List)
		if !read && !refused {
			continue
		}
		for key := range k.versions {
			if op.Covers(key) {
				k.compare(f, op, key)
			}
		}
	}
}

// compare compares what one read shows of one key.
func (k known) compare(f *findings, op *history.Op, key string) {
	var shown history.Item
	if i := slices.IndexFunc(op.Items, func(i history.Item) bool { return i.Key == key }); i >= 0 {
		shown = op.Items[i]
	}
	if shown.Revision > op.Revision {
		f.add(Torn, "client %d: %s shows a write after its revision", op.Client, describe(op))
	}
	v, found := k.newest(key, op.Revision)
	switch {
	case !found || shown.Revision >= v.revision:
		return
	case shown.Revision == 0 && (v.value == "" || k.mayBeDeleted(key, v, op)):
		return
	case shown.Revision == 0 && k.early(key, op):
		f.add(Torn, "client %d: %s shows a delete after its revision", op.Client, describe(op))
	case v.acknowledged < op.Call:
		f.add(Lost, "client %d: %s does not show %s = %q @%d, acknowledged before", op.Client, describe(op), key, v.value, v.revision)
	case v.seen < op.Call:
		f.add(Gone, "client %d: %s does not show %s = %q @%d, seen before", op.Client, describe(op), key, v.value, v.revision)
	default:
		f.add(Torn, "client %d: %s does not show %s = %q @%d", op.Client, describe(op), key, v.value, v.revision)
	}
}
