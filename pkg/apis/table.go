package apis

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/meta/table"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// columns are what kubectl get prints besides Name and Age, or the whole of it.
type columns struct {
	definitions []metav1.TableColumnDefinition
	row         func(runtime.Object) []any
	whole       bool
}

// ConvertToTable prints an object or a list.
func (c *columns) ConvertToTable(_ context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	rows, err := table.MetaToTableRow(obj, c.cells)
	if err != nil {
		return nil, err
	}
	t := &metav1.Table{Rows: rows}
	if list, err := meta.ListAccessor(obj); err == nil {
		t.ResourceVersion = list.GetResourceVersion()
		t.Continue = list.GetContinue()
		t.RemainingItemCount = list.GetRemainingItemCount()
	} else if object, err := meta.CommonAccessor(obj); err == nil {
		t.ResourceVersion = object.GetResourceVersion()
	}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		t.ColumnDefinitions = c.headers()
	}
	return t, nil
}

func (c *columns) headers() []metav1.TableColumnDefinition {
	if c.whole {
		return c.definitions
	}
	docs := metav1.ObjectMeta{}.SwaggerDoc()
	name := metav1.TableColumnDefinition{Name: "Name", Type: "string", Format: "name", Description: docs["name"]}
	age := metav1.TableColumnDefinition{Name: "Age", Type: "string", Description: docs["creationTimestamp"]}
	return slices.Concat([]metav1.TableColumnDefinition{name}, slices.Insert(slices.Clone(c.definitions), c.agePosition(), age))
}

func (c *columns) cells(obj runtime.Object, _ metav1.Object, name, age string) ([]any, error) {
	cells := c.row(obj)
	if len(cells) != len(c.definitions) {
		return nil, fmt.Errorf("the row function of %T returned %d cells for %d columns", obj, len(cells), len(c.definitions))
	}
	if c.whole {
		return cells, nil
	}
	return slices.Concat([]any{name}, slices.Insert(slices.Clone(cells), c.agePosition(), any(age))), nil
}

// agePosition is the index of Age among the columns: before the wide ones.
func (c *columns) agePosition() int {
	wide := slices.IndexFunc(c.definitions, func(d metav1.TableColumnDefinition) bool { return d.Priority > 0 })
	if wide < 0 {
		return len(c.definitions)
	}
	return wide
}
