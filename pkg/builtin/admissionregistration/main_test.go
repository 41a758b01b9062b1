package admissionregistration

import (
	"os"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/sailplane-dev/sailplane/pkg/internal/leaktest"
)

func TestMain(m *testing.M) {
	os.Exit(leaktest.Run(m))
}

// validCase is an object that was good before it was changed.
type validCase[T any] struct {
	reason string
	change func(*T)
	want   string
}

// checkCases compares what is wrong with the objects.
func checkCases[T any](t *testing.T, good func() *T, validate func(*T) field.ErrorList, cases map[string]validCase[T]) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj := good()
			c.change(obj)
			got := ""
			if err := validate(obj).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", c.reason, got, c.want)
			}
		})
	}
}

func rule() admissionv1.RuleWithOperations {
	return admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}
}

func constraints() *admissionv1.MatchResources {
	return &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule()}}}
}

func reference() *admissionv1.ParamRef {
	return &admissionv1.ParamRef{Name: "one", ParameterNotFoundAction: ptr.To(admissionv1.DenyAction)}
}
