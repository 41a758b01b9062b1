package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kinds says for each field, such as "storage.url", what it takes, as help shows it.
func kinds() map[string]string {
	all := map[string]string{}
	describe(reflect.TypeFor[Server](), "", all)
	return all
}

// lists are the fields that are lists.
func lists() []string {
	var all []string
	for field, kind := range kinds() {
		if kind == "list" {
			all = append(all, field)
		}
	}
	return all
}

func describe(t reflect.Type, field string, all map[string]string) {
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		all[field] = "duration"
	case t == reflect.TypeFor[resource.Quantity]():
		all[field] = "size"
	case t.Kind() == reflect.Slice:
		all[field] = "list"
	case t.Kind() == reflect.Struct:
		for i := range t.NumField() {
			tag, _ := tagged(t.Field(i))
			describe(t.Field(i).Type, strings.TrimPrefix(field+"."+tag, "."), all)
		}
	default:
		all[field] = t.Kind().String()
	}
}

// show returns the value of a field as a flag has it; empty if it is the zero one.
func (d *Document) show(field string) string {
	n := d.root
	for part := range strings.SplitSeq(field, ".") {
		if n = child(n, part); n == nil {
			return ""
		}
	}
	if n.Kind == yaml.SequenceNode {
		var words []string
		for _, c := range n.Content {
			words = append(words, c.Value)
		}
		return strings.Join(words, ",")
	}
	if n.Value == "0s" {
		return ""
	}
	return n.Value
}
