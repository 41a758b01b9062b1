package config

import (
	"reflect"
	"slices"
	"strings"
)

// followed are the fields that change without a restart. Files that fields name are
// followed as well, by the parts that read them.
func followed() []string {
	return []string{
		"authentication.jwt", "authorization.authorizers",
		"limits.mode", "limits.requestsPerSecond", "limits.burst", "limits.requestsAtOnce", "limits.watches", "limits.writeRate",
		"limits.writeBurst", "limits.namespaceFactor", "limits.objectSize", "limits.objectsPerResource", "limits.storedSize",
		"limits.storedSizePerUser",
	}
}

// Change returns the configuration with those changes of another that need no restart, and
// the names of the fields that changed: those that it has now, and those that wait for
// a restart.
func (s *Server) Change(to *Server) (changed *Server, now, later []string) {
	next := *s
	compare(reflect.ValueOf(&next).Elem(), reflect.ValueOf(to).Elem(), "", func(field string, mine, other reflect.Value) {
		if slices.Contains(followed(), field) {
			mine.Set(other)
			now = append(now, field)
			return
		}
		later = append(later, field)
	})
	return &next, now, later
}

// compare calls a function for each field that differs.
func compare(a, b reflect.Value, field string, differs func(field string, a, b reflect.Value)) {
	own := a.Type().PkgPath() == reflect.TypeFor[Server]().PkgPath()
	if a.Kind() != reflect.Struct || !own {
		if !reflect.DeepEqual(a.Interface(), b.Interface()) {
			differs(field, a, b)
		}
		return
	}
	for i := range a.NumField() {
		tag, _ := tagged(a.Type().Field(i))
		compare(a.Field(i), b.Field(i), strings.TrimPrefix(field+"."+tag, "."), differs)
	}
}
