package config

import (
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of fields that are no plain Go types, as help shows them.
const (
	kindDuration = "duration"
	kindSize     = "size"
	kindList     = "strings"
)

// kind says what a field takes, such as "storage.url"; empty if there is none.
func kind(field string) string {
	t := reflect.TypeFor[Server]()
	for part := range strings.SplitSeq(field, ".") {
		member, found := t.FieldByNameFunc(func(name string) bool {
			f, _ := t.FieldByName(name)
			tag, _ := tagged(f)
			return tag == part
		})
		if !found {
			return ""
		}
		t = member.Type
	}
	switch {
	case t == reflect.TypeFor[metav1.Duration]():
		return kindDuration
	case t == reflect.TypeFor[resource.Quantity]():
		return kindSize
	case t.Kind() == reflect.Slice:
		return kindList
	}
	return t.Kind().String()
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
