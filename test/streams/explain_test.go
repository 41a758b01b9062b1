package streams

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/keep/keeptest"
	"github.com/sailplane-dev/sailplane/pkg/planetest"
)

// varieties has kubectl show the variety.
func varieties() apis.Option {
	return apis.Columns(func(a *fruit.Apple) []any { return []any{a.Spec.Variety} },
		metav1.TableColumnDefinition{Name: "Variety", Type: "string"})
}

// TestExplain: kubectl explains objects that a function makes, that somebody keeps, and that are
// views, and prints them with their columns.
func TestExplain(t *testing.T) {
	t.Parallel()
	made := fruit.Apple{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gala"}, Spec: fruit.AppleSpec{Variety: "Gala"}}
	group := func(name string, d *apis.Definition) *apis.Group {
		return apis.NewGroup(schema.GroupVersion{Group: name, Version: "v1"}, nil, nil, d)
	}
	p := planetest.Options{Kubeconfig: true}.Start(t,
		group("virtual.example.com", apis.Virtual[fruit.Apple, fruit.AppleList]("quinces", apis.Poll(time.Minute,
			func(context.Context, apis.Query) ([]fruit.Apple, error) { return []fruit.Apple{made}, nil }), apis.Kind("Quince"), varieties())),
		group("kept.example.com", apis.Resource[fruit.Apple, fruit.AppleList]("pears",
			apis.Kept(keeptest.NewMemory[fruit.Apple]()), apis.Kind("Pear"), varieties())),
		group("view.example.com", apis.Project[fruit.Apple, fruit.AppleList]("plums", apis.Over("kept.example.com/v1", "pears"),
			func(below, view *fruit.Apple) bool { view.Spec = below.Spec; return true }, nil, apis.Kind("Plum"), varieties())),
	)
	p.Apply(t, planetest.YAML("{apiVersion: kept.example.com/v1, kind: Pear, metadata: {name: gala}, spec: {variety: Gala}}"))
	kubectl := (&pods{kubeconfig: p.Kubeconfig()}).kubectl
	for resource, kind := range map[string]string{
		"quinces.virtual.example.com": "Quince", "pears.kept.example.com": "Pear", "plums.view.example.com": "Plum",
	} {
		plural, group, _ := strings.Cut(resource, ".")
		explain := func(what string) string {
			return said(t, kubectl(t, "", "explain", what, "--api-version="+group+"/v1"))
		}
		for what, wants := range map[string][]string{
			plural:                   {"GROUP: " + group, "KIND: " + kind, "VERSION: v1", "metadata <ObjectMeta>", "spec <"},
			plural + ".spec":         {"KIND: " + kind, "variety <string>", "replicas <integer>"},
			plural + ".spec.variety": {"KIND: " + kind, "FIELD: variety <string>"},
		} {
			got := strings.Join(strings.Fields(explain(what)), " ")
			for _, want := range wants {
				if !strings.Contains(got, want) {
					t.Errorf("kubectl explain %s does not say %q: %s", what, want, got)
				}
			}
		}
		table := strings.Split(said(t, kubectl(t, "", "get", resource)), "\n")
		if len(table) != 3 || strings.Join(strings.Fields(table[0]), " ") != "NAME VARIETY AGE" ||
			!strings.HasPrefix(strings.Join(strings.Fields(table[1]), " "), "gala Gala ") {
			t.Errorf("kubectl get %s prints %q", resource, table)
		}
	}
}
