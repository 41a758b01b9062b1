package apis

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// statusField is the Go field behind /status.
const statusField = "Status"

// statusOf is the Status field of an object that has one; Err checks that.
func statusOf(obj runtime.Object) reflect.Value { return embedded(obj, statusField) }

// metadataOf is the embedded metadata of an object.
func metadataOf(obj runtime.Object) reflect.Value { return embedded(obj, "ObjectMeta") }

// embedded is a field of what obj points to, invalid where there is none.
func embedded(obj any, name string) reflect.Value {
	return reflect.ValueOf(obj).Elem().FieldByName(name)
}

// metaFields put a field of metadata back, by its JSON name.
func metaFields() map[string]func(obj, old Object) {
	return map[string]func(obj, old Object){
		"labels":            func(obj, old Object) { obj.SetLabels(old.GetLabels()) },
		"ownerReferences":   func(obj, old Object) { obj.SetOwnerReferences(old.GetOwnerReferences()) },
		"deletionTimestamp": func(obj, old Object) { obj.SetDeletionTimestamp(old.GetDeletionTimestamp()) },
	}
}

// desiredStateChanged compares everything but metadata and, where there is a
// /status, status: what metadata.generation counts.
func (d *Definition) desiredStateChanged(obj, old runtime.Object) bool {
	a, b := reflect.ValueOf(obj).Elem(), reflect.ValueOf(old).Elem()
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || isMeta(f.Type) || (d.status && f.Name == statusField) {
			continue
		}
		if !equality.Semantic.DeepEqual(a.Field(i).Addr().Interface(), b.Field(i).Addr().Interface()) {
			return true
		}
	}
	return false
}

func isMeta(t reflect.Type) bool {
	return t == reflect.TypeFor[metav1.TypeMeta]() || t == reflect.TypeFor[metav1.ObjectMeta]()
}

// pathOf is the path of a field named with dots, "spec.replicas".
func pathOf(name string) fieldpath.Path {
	var path fieldpath.Path
	for part := range strings.SplitSeq(name, ".") {
		path = append(path, fieldpath.PathElement{FieldName: &part})
	}
	return path
}

// jsonFields are the names of the top-level JSON fields of a struct type.
func jsonFields(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct:
			names = append(names, jsonFields(f.Type)...)
		case !f.IsExported():
		case name == "":
			names = append(names, f.Name)
		default:
			names = append(names, name)
		}
	}
	return names
}
