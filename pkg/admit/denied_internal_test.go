package admit

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

func TestDenied(t *testing.T) {
	t.Parallel()
	r := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	a := admission.NewAttributesRecord(nil, nil, r.GroupVersion().WithKind("ConfigMap"), "ns", "a", r, "", Create, nil, false, nil)
	conflict := apierrors.NewConflict(r.GroupResource(), "b", errors.New("changed"))
	cases := map[string]struct {
		reason string
		err    error
		is     func(error) bool
		want   string
	}{
		"status":  {"it is the answer", conflict, apierrors.IsConflict, conflict.Error()},
		"wrapped": {"its code is, with the text", fmt.Errorf("look at b: %w", conflict), apierrors.IsConflict, "look at b: " + conflict.Error()},
		"other":   {"it is a refusal", errors.New("no"), apierrors.IsForbidden, `configmaps "a" is forbidden: admission "f" denied the request: no`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := denied(a, "f", c.err)
			if _, ok := got.(apierrors.APIStatus); !ok || !c.is(got) || got.Error() != c.want {
				t.Errorf("%s: got %T %v", c.reason, got, got)
			}
		})
	}
}
