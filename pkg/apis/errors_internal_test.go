package apis

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestBound: many errors and long values are not repeated whole.
func TestBound(t *testing.T) {
	t.Parallel()
	var errs field.ErrorList
	for range 5_000 {
		errs = append(errs, field.Invalid(field.NewPath("data"), strings.Repeat("a", 5_000), "wrong"))
	}
	errs = bound(errs)
	if len(errs) != mostErrors+1 || !strings.Contains(errs[mostErrors].Error(), "4900 more errors") {
		t.Errorf("%d errors, the last is %v", len(errs), errs[len(errs)-1])
	}
	if n := len(errs[0].Error()); n > longestValue+100 {
		t.Errorf("an error has %d bytes", n)
	}
	few := bound(field.ErrorList{field.Required(field.NewPath("a"), "b")})
	if len(few) != 1 || few[0].Type != field.ErrorTypeRequired {
		t.Errorf("got %v", few)
	}
}
