package kube

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

const (
	none    = "<none>"
	unknown = "<unknown>"
)

// columns are columns of text or, for names that end in #, of integers; those
// after an empty name are printed only with -o wide.
func columns(names ...string) []metav1.TableColumnDefinition {
	var all []metav1.TableColumnDefinition
	priority := int32(0)
	for _, name := range names {
		if name == "" {
			priority = 1
			continue
		}
		plain, number := strings.CutSuffix(name, "#")
		c := metav1.TableColumnDefinition{Name: plain, Type: "string", Priority: priority, Description: plain}
		if number {
			c.Type = "integer"
		}
		all = append(all, c)
	}
	return all
}

// table is apis.Columns with the columns by name.
func table[T any](row func(*T) []any, names ...string) apis.Option {
	return apis.Columns(row, columns(names...)...)
}

// ageAt moves the column Age from one index to another, and removes it if that
// is negative: a few kinds do not print it where most do.
func ageAt(from, to int) apis.Option {
	return apis.Store(func(s *registry.Store) {
		s.TableConvertor = movedAge{TableConvertor: s.TableConvertor, from: from, to: to}
	})
}

type movedAge struct {
	rest.TableConvertor
	from, to int
}

// ConvertToTable implements rest.TableConvertor.
func (m movedAge) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	t, err := m.TableConvertor.ConvertToTable(ctx, obj, options)
	if err != nil {
		return nil, err
	}
	t.ColumnDefinitions = move(t.ColumnDefinitions, m.from, m.to)
	for i := range t.Rows {
		t.Rows[i].Cells = move(t.Rows[i].Cells, m.from, m.to)
	}
	return t, nil
}

func move[E any](list []E, from, to int) []E {
	if from >= len(list) {
		return list
	}
	moved := list[from]
	list = slices.Delete(list, from, from+1)
	if to < 0 {
		return list
	}
	return slices.Insert(list, to, moved)
}

// containers are the cells Containers and Images.
func containers(spec corev1.PodSpec) (names, images string) {
	var n, i []string
	for _, c := range spec.Containers {
		n, i = append(n, c.Name), append(i, c.Image)
	}
	return strings.Join(n, ","), strings.Join(i, ",")
}

// orNone is the text, or <none> where there is none.
func orNone(text string) string { return cmp.Or(text, none) }

// since is the time passed since t, in the words of kubectl.
func since(t *metav1.Time, otherwise string) string {
	if t == nil || t.IsZero() {
		return otherwise
	}
	return duration.HumanDuration(time.Since(t.Time))
}

// value is what p points to, or the zero value.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// set makes p point to a value unless it points to one.
func set[T any](p **T, to T) {
	if *p == nil {
		*p = &to
	}
}

// fill sets a value that is empty.
func fill[T comparable](p *T, to T) {
	var zero T
	if *p == zero {
		*p = to
	}
}

// boolean is the cell of an optional bool.
func boolean(p *bool, otherwise string) string {
	if p == nil {
		return otherwise
	}
	return fmt.Sprint(*p)
}

// selectorText is a selector for a Scale.
func selectorText(s *metav1.LabelSelector) string {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return ""
	}
	return selector.String()
}
